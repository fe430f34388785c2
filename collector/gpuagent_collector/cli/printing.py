"""The printing of an answer: as a document for people, by its export for programs."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import click

from gpuagent_collector.output.formats import OutputFormat
from gpuagent_collector.output.text import harmless

if TYPE_CHECKING:
    from rich.console import Console


class Export(Protocol):
    """The module that writes one kind of answer for programs."""

    def to_json(self, answer: Any, /) -> str:
        """Return it as JSON."""
        ...

    def to_csv(self, answer: Any, /) -> str:
        """Return it as CSV."""
        ...

    def to_markdown(self, answer: Any, /) -> str:
        """Return it as Markdown."""
        ...


def print_answer(
    answer: Any, output_format: OutputFormat, *, export: Export, show: "Callable[[Console], None]"
) -> None:
    """Print `answer`: by `show` for people, by `export` for programs."""
    if output_format is OutputFormat.TABLE:
        from rich.console import Console

        show(Console(highlight=False))
        return
    write = {
        OutputFormat.JSON: export.to_json,
        OutputFormat.CSV: export.to_csv,
        OutputFormat.MARKDOWN: export.to_markdown,
    }[output_format]
    text = write(answer).rstrip("\n")
    # Files and pipes get CSV unchanged: without `color` click would remove anything that looks like a colour.
    click.echo("\n".join(map(harmless, text.split("\n"))) if sys.stdout.isatty() else text, color=True)


def print_error(words: str) -> None:
    """Print a line on stderr, escaped, with the program's name before it."""
    click.echo(f"collector: {harmless(words)}", err=True)


def print_rows_of(table: str, rows: int) -> None:
    """Print a table's number of rows on stderr, unless it has none."""
    if rows:
        click.echo(f"  {harmless(table):<20} {rows:>13,} rows", err=True)
