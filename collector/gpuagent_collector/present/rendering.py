"""An answer in every format in which a command prints it."""

import sys
from typing import Any, TextIO

import pyarrow as pa
from rich.console import Console

from gpuagent_collector.present import terminal
from gpuagent_collector.present.answer import Answer
from gpuagent_collector.present.data import write_csv
from gpuagent_collector.present.formats import OutputFormat
from gpuagent_collector.present.latex import to_latex
from gpuagent_collector.present.markdown import to_markdown
from gpuagent_collector.present.values import Column


def as_table(answer: Answer) -> pa.Table:
    """Return an answer's lines as a table; a number among texts is a text."""
    lines = answer.lines()
    names = dict.fromkeys(name for table in answer.tables() for name in table.names())
    return pa.table({name: _column([line.get(name) for line in lines]) for name in names})


def _column(values: list[Any]) -> Column:
    try:
        found: Column = pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        found = pa.array([None if value is None else str(value) for value in values], pa.string())
    return found


def print_answer(answer: Answer, output_format: OutputFormat, out: TextIO | None = None) -> None:
    """Print an answer, by default to standard output."""
    out = out or sys.stdout
    match output_format:
        case OutputFormat.JSON:
            out.write(f"{answer.json()}\n")
        case OutputFormat.MARKDOWN:
            out.write(f"{to_markdown(answer.document(details=answer.everything))}\n")
        case OutputFormat.LATEX:
            out.write(f"{to_latex(answer.document(details=answer.everything))}\n")
        case OutputFormat.CSV:
            table = as_table(answer)
            write_csv(table.schema, table.to_batches(), out)
        case OutputFormat.TABLE:
            terminal.print_answer(Console(file=out, highlight=False), answer)
