"""Printing an answer that has a document of its own for people, for programs."""

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
    """Print `answer`: by `show` for people, and by `export` for programs."""
    if output_format is not OutputFormat.TABLE:
        _print_exported(answer, export, output_format)
        return
    from rich.console import Console

    show(Console(highlight=False))


def _print_exported(answer: Any, export: Export, output_format: OutputFormat) -> None:
    """Print `answer` in a format for programs: JSON, CSV or Markdown."""
    write = {
        OutputFormat.JSON: export.to_json,
        OutputFormat.CSV: export.to_csv,
        OutputFormat.MARKDOWN: export.to_markdown,
    }[output_format]
    text = write(answer).rstrip("\n")
    # Files and pipes get CSV as it is: without `color` click would take out what looks like a colour.
    click.echo("\n".join(map(harmless, text.split("\n"))) if sys.stdout.isatty() else text, color=True)
