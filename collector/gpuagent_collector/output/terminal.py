"""The look of everything that is written to a terminal."""

from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table

# Blanks between two columns of a table.
GAP = 2


def plain_console(out: TextIO) -> Console:
    """Return a console that prints text as it is: no markup, no emoji names, no guessed highlights."""
    return Console(file=out, markup=False, emoji=False, highlight=False)


def plain_table() -> Table:
    """Return a table with a line below its header and nothing else, its columns GAP apart."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")


def table_width(column_widths: list[int]) -> int:
    """Return the width of a `plain_table` with such columns."""
    return sum(column_widths) + GAP * (len(column_widths) - 1)
