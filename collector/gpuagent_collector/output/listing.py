"""Lists whose columns depend on the terminal's width: the important ones first, the others where there is room."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpuagent_collector.output.terminal import GAP, plain_table
from gpuagent_collector.output.values import ABSENT
from gpuagent_common.text import harmless

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListColumn:
    """One column of a list.

    Attributes:
        title: its header.
        show: makes the cell of a row; None: no value.
        rank: columns of lower rank get room first.
        style: makes the cell's rich style from its text; None: none.
        right: whether it is aligned to the right.
        max_width: longer cells are folded; None: never.
    """

    title: str
    show: Callable[[Row], str | None]
    rank: int
    style: Callable[[str], str] | None = None
    right: bool = False
    max_width: int | None = None


def print_list(columns: Sequence[ListColumn], rows: Sequence[Row], console: Console) -> None:
    """Print the rows with as many of the columns as fit."""
    console.print(list_table(columns, rows, console.width))


def list_table(columns: Sequence[ListColumn], rows: Sequence[Row], width: int) -> Table:
    """Return the rows as a table with as many of the columns as fit into `width`."""
    cells = [[harmless(column.show(row) or ABSENT) for row in rows] for column in columns]
    table = plain_table()
    chosen = _choose_columns(columns, cells, width)
    for index in chosen:
        column = columns[index]
        table.add_column(
            column.title, justify="right" if column.right else "left", overflow="fold", max_width=column.max_width
        )
    for row in range(len(rows)):
        styled = ((columns[index].style, cells[index][row]) for index in chosen)
        table.add_row(*(Text(text, style=style(text) if style else "") for style, text in styled))
    return table


def _choose_columns(columns: Sequence[ListColumn], cells: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the indexes of the columns that fit, in order; the first by rank is always among them."""
    chosen: list[int] = []
    room = width + GAP
    for index in sorted(range(len(columns)), key=lambda index: columns[index].rank):
        widest = max(map(cell_len, (columns[index].title, *cells[index])))
        room -= GAP + min(widest, columns[index].max_width or widest)
        if room >= 0 or not chosen:
            chosen.append(index)
        else:
            break
    return sorted(chosen)
