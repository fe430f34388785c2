"""Tables: rows, their raw cells, and how people see them.

A row is an object of a study, or a mapping. A column says once what its cells are, for JSON and CSV, and how they look.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from gpuagent_collector.present.human import notation, significant
from gpuagent_collector.present.values import ABSENT


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        key: its name in JSON and CSV; None: it is only shown.
        title: its header; None: it is only in data.
        value: makes the raw cell of a row, or is the path to it, such as node.name or values.0; None: what the row has
            under `key`, without a key the row itself.
        show: makes the text of a cell that is not None; None: as `write_cell` does.
        unit: that of its figures, which then share one notation.
        left: whether it is aligned to the left, as names are.
        wide: True: only where there is much room; False: only where there is little; None: always.
    """

    key: str | None
    title: str | None = None
    value: Callable[[Any], Any] | str | None = None
    show: Callable[[Any], str | None] | None = None
    unit: str | None = None
    left: bool = False
    wide: bool | None = None

    def cell(self, row: Any) -> Any:
        """Return the raw cell of a row."""
        if callable(self.value):
            return self.value(row)
        path = self.value or self.key
        for name in path.split(".") if path else ():
            if row is None:
                break
            match row:
                case Mapping():
                    row = row.get(name)
                case list() | tuple():
                    row = row[int(name)]
                case _:
                    row = getattr(row, name)
        return row


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


@dataclass(frozen=True, slots=True)
class Table:
    """Rows and their columns.

    Attributes:
        columns: in their order; a text is the key of one that is only in data.
        rows: a text among them is a heading, in no data.
        about: what all rows share; CSV has it before the cells of each row.
        foot: rows below, such as totals, in no data.
        keys: columns after these may go to further tables where a terminal is too narrow; None: none may.
        most: a terminal shows so many rows; None: all.
        more: makes the line below from the rows that a terminal does not show.
    """

    columns: Sequence[Column | str]
    rows: Sequence[Any]
    about: Mapping[str, Any] | None = None
    foot: Sequence[Any] = ()
    keys: int | None = None
    most: int | None = None
    more: Callable[[Sequence[Any]], str] | None = None

    def names(self) -> list[str]:
        """Return the names of CSV's columns."""
        keys = [each if isinstance(each, str) else each.key for each in self.columns]
        return [*(self.about or {}), *(key for key in keys if key is not None)]

    def records(self) -> list[dict[str, Any]]:
        """Return the cells of each row by their keys, as JSON has them."""
        every = [Column(each) if isinstance(each, str) else each for each in self.columns]
        columns = {column.key: column for column in every if column.key is not None}
        rows = (row for row in self.rows if not isinstance(row, str))
        return [{key: column.cell(row) for key, column in columns.items()} for row in rows]

    def lines(self) -> list[dict[str, Any]]:
        """Return the cells of each line that CSV has."""
        return [{**(self.about or {}), **record} for record in self.records()]

    def grid(self, *, wide: bool = True, whole: bool = True) -> Grid:
        """Return the table as text: `wide` with all columns, `whole` with all rows."""
        columns = [each for each in self.columns if isinstance(each, Column) and each.title is not None]
        columns = [column for column in columns if column.wide in (None, wide)]
        shown = [*(self.rows if whole else self.rows[: self.most]), *self.foot]
        figures = [row for row in (*self.rows, *self.foot) if not isinstance(row, str)]
        writers = [_writer(column, figures) for column in columns]
        rows = [(row,) if isinstance(row, str) else tuple(write(row) for write in writers) for row in shown]
        return Grid(
            header=tuple(column.title or "" for column in columns),
            rows=tuple(rows),
            keys=self.keys,
            left=tuple(column.left for column in columns),
        )


def data_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table that is only in data, with a column for each key of the rows."""
    return Table(list(dict.fromkeys(key for row in rows for key in row)), rows)


def _writer(column: Column, rows: Sequence[Any]) -> Callable[[Any], str]:
    """Return what writes a row's cell of a column."""
    show = column.show or write_cell
    if column.unit is not None:
        cells = map(column.cell, rows)
        show = notation([cell for cell in cells if cell is not None], column.unit).write

    def write(row: Any) -> str:
        cell = column.cell(row)
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
