"""Tables: raw cells, and how each column of them is shown.

A row is a mapping from a column's key to its raw cell: a number, a text, a time, an enum, None. JSON and CSV have these
cells as they are, whether or not a column shows them. A column without a key shows the row as a whole, in no data.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from gpuagent_collector.present.human import notation, significant
from gpuagent_collector.present.values import ABSENT

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column that is shown.

    Attributes:
        key: the cell that it shows; None: the whole row.
        title: its header.
        show: makes the text of a cell that is not None, or of the row; None: as `write_cell` does.
        unit: that of its figures, which then share one notation.
        left: whether it is aligned to the left, as names are.
        in_data: whether JSON and CSV have its cells.
        wide: True: only where there is much room; False: only where there is little; None: always.
    """

    key: str | None
    title: str
    show: Callable[[Any], str | None] | None = None
    unit: str | None = None
    left: bool = False
    in_data: bool = True
    wide: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table as text. A row of one cell is a heading within it; columns from `figures_from` on are numbers.

    Columns after the first `keys` may go to further tables where a terminal is too narrow; None: none may.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    figures_from: int = 1
    keys: int | None = None
    # Of each column whether it is aligned to the left; None: as `figures_from` says.
    left: tuple[bool, ...] | None = None

    def right_columns(self) -> list[bool]:
        """Return for each column whether it is aligned to the right."""
        if self.left is not None:
            return [not left for left in self.left]
        return [column >= self.figures_from for column in range(len(self.header))]

    def full_rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the rows, headings within the table as wide as the others."""
        for row in self.rows:
            yield row if len(row) > 1 else (row[0], *[""] * (len(self.header) - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Raw cells and the columns that show them.

    Attributes:
        columns: those that are shown.
        rows: a text among them is a heading, in no data.
        about: facts that all rows share; CSV has them before the cells of each row.
        foot: rows below, such as totals, in no data.
        keys: columns after these may go to further tables where a terminal is too narrow; None: none may.
        most: a terminal shows so many rows; None: all.
        more: makes the line below from the rows that a terminal does not show.
    """

    columns: Sequence[Column]
    rows: Sequence[Row | str]
    about: Row | None = None
    foot: Sequence[Row] = ()
    keys: int | None = None
    most: int | None = None
    more: Callable[[Sequence[Row | str]], str] | None = None

    def records(self) -> list[dict[str, Any]]:
        """Return the cells of each row that JSON has."""
        hidden = {column.key for column in self.columns if not column.in_data}
        rows = [row for row in self.rows if not isinstance(row, str)]
        return [{key: cell for key, cell in row.items() if key not in hidden} for row in rows]

    def lines(self) -> list[dict[str, Any]]:
        """Return the cells of each line that CSV has."""
        return [{**(self.about or {}), **record} for record in self.records()]

    def grid(self, *, wide: bool = True, whole: bool = True) -> Grid:
        """Return the table as text: `wide` with all columns, `whole` with all rows."""
        columns = [column for column in self.columns if column.wide in (None, wide)]
        figures = [row for row in (*self.rows, *self.foot) if not isinstance(row, str)]
        writers = [_writer(column, figures) for column in columns]
        shown = self.rows if whole else self.rows[: self.most]
        rows = [(row,) if isinstance(row, str) else tuple(write(row) for write in writers) for row in shown]
        rows += [tuple(write(row) for write in writers) for row in self.foot]
        return Grid(
            header=tuple(column.title for column in columns),
            rows=tuple(rows),
            keys=self.keys,
            left=tuple(column.left for column in columns),
        )


def _writer(column: Column, rows: Sequence[Row]) -> Callable[[Row], str]:
    """Return what writes a row's cell of a column."""
    key, show = column.key, column.show or write_cell
    if key is not None and column.unit is not None:
        show = notation([row[key] for row in rows if row.get(key) is not None], column.unit).write

    def write(row: Row) -> str:
        cell = row if key is None else row.get(key)
        text = None if cell is None else show(cell)
        return ABSENT if text is None else text

    return write


def write_cell(value: object) -> str:
    """Return a raw cell as people read it: numbers with three significant digits, lists with commas."""
    match value:
        case None:
            return ABSENT
        case bool():
            return "yes" if value else "no"
        case Enum():
            return str(value.value)
        case int() | float():
            return significant(value)
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}"
        case list() | tuple():
            return ", ".join(map(write_cell, value)) or ABSENT
    return str(value)
