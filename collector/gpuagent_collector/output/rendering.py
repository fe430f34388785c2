"""An answer in every format in which a command prints it."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from rich.console import Console

from gpuagent_collector.output.document import Section
from gpuagent_collector.output.formats import OutputFormat
from gpuagent_collector.output.latex import to_latex
from gpuagent_collector.output.printing import write_csv
from gpuagent_collector.output.sections import print_sections, to_markdown


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """The forms of an answer; each is made only when it is printed.

    Attributes:
        sections: makes the whole document.
        record: makes the object that JSON has.
        lines: makes the lines that CSV has, at least one, all with the same columns.
        show: prints to a terminal; None: prints the sections.
    """

    sections: Callable[[], Iterable[Section]]
    record: Callable[[], Mapping[str, Any]]
    lines: Callable[[], Iterable[Mapping[str, Any]]]
    show: Callable[[Console], None] | None = None

    def json(self) -> str:
        """Return the answer as one JSON object."""
        return json.dumps(self.record(), indent=2, default=str)

    def markdown(self) -> str:
        """Return the document in GitHub's Markdown."""
        return to_markdown(self.sections())

    def table(self) -> pa.Table:
        """Return the lines as a table; a nested value is JSON."""
        lines = [{name: _flat(value) for name, value in line.items()} for line in self.lines()]
        return pa.Table.from_pylist(lines)


def _flat(value: object) -> object:
    return json.dumps(value) if isinstance(value, dict | list | tuple) else value


def print_rendering(rendering: Rendering, output_format: OutputFormat) -> None:
    """Print an answer to standard output."""
    match output_format:
        case OutputFormat.JSON:
            sys.stdout.write(f"{rendering.json()}\n")
        case OutputFormat.MARKDOWN:
            sys.stdout.write(f"{rendering.markdown()}\n")
        case OutputFormat.LATEX:
            sys.stdout.write(f"{to_latex(rendering.sections())}\n")
        case OutputFormat.CSV:
            table = rendering.table()
            write_csv(table.schema, table.to_batches(), sys.stdout)
        case OutputFormat.TABLE if rendering.show:
            rendering.show(Console(highlight=False))
        case OutputFormat.TABLE:
            print_sections(Console(highlight=False), rendering.sections())
