"""An answer in every format in which a command prints it."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from rich.console import Console

from gpuagent_collector.present.answer import Answer, Section
from gpuagent_collector.present.data import write_csv
from gpuagent_collector.present.formats import OutputFormat
from gpuagent_collector.present.latex import to_latex
from gpuagent_collector.present.markdown import to_markdown
from gpuagent_collector.present.terminal import print_answer, print_sections


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """The forms of an answer that is not an `Answer` yet."""

    sections: Callable[[], Iterable[Section]]
    record: Callable[[], Mapping[str, Any]]
    lines: Callable[[], Iterable[Mapping[str, Any]]]
    show: Callable[[Console], None] | None = None

    def document(self) -> Iterable[Section]:
        """Return the sections."""
        return self.sections()


def as_json(answer: Answer | Rendering) -> str:
    """Return an answer as one JSON object."""
    return json.dumps(answer.record(), indent=2, default=str)


def as_table(answer: Answer | Rendering) -> pa.Table:
    """Return an answer's lines as a table; a nested value is JSON, and a number among texts is a text."""
    lines = [{name: _flat(value) for name, value in line.items()} for line in answer.lines()]
    names = dict.fromkeys(name for line in lines for name in line)
    if isinstance(answer, Answer):
        names = dict.fromkeys(name for table in answer.csv for name in table.names())
    return pa.table({name: _column([line.get(name) for line in lines]) for name in names})


def _column(values: list[Any]) -> "pa.Array[Any]":
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else str(value) for value in values], pa.string())


def _flat(value: object) -> object:
    return json.dumps(value) if isinstance(value, dict | list | tuple) else value


def print_rendering(answer: Answer | Rendering, output_format: OutputFormat) -> None:
    """Print an answer to standard output."""
    match output_format:
        case OutputFormat.JSON:
            sys.stdout.write(f"{as_json(answer)}\n")
        case OutputFormat.MARKDOWN:
            sys.stdout.write(f"{to_markdown(answer.document())}\n")
        case OutputFormat.LATEX:
            sys.stdout.write(f"{to_latex(answer.document())}\n")
        case OutputFormat.CSV:
            table = as_table(answer)
            write_csv(table.schema, table.to_batches(), sys.stdout)
        case OutputFormat.TABLE:
            console = Console(highlight=False)
            if isinstance(answer, Answer):
                print_answer(console, answer)
            elif answer.show:
                answer.show(console)
            else:
                print_sections(console, answer.document())
