"""Tables: rows, their raw cells, and how people see them.

A row is an object of a study, or a mapping. A column says once what its cells are, for JSON and CSV, and how they look.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from itertools import compress
from typing import Any

from gpuagent_collector.present.human import notation, significant
from gpuagent_collector.present.values import ABSENT

# Of a table on the first screen.
MOST_ROWS = 12

# Marks a row in which sides differ, in its first column.
MARK = "≠"


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
    """A table as text. A row of one cell is a heading within it; `left` says of each column how it is aligned.

    Columns after the first `keys` may go to further tables where a terminal is too narrow; None: none may.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: tuple[bool, ...]
    keys: int | None = None
    # In a terminal of at least so many columns they never do.
    fits: int | None = None
    # Addresses of the first cells' pages, in HTML.
    links: tuple[str, ...] = ()

    def right_columns(self) -> list[bool]:
        """Return for each column whether it is aligned to the right."""
        return [not left for left in self.left]

    def without_empty(self) -> "Grid":
        """Return the table without the columns, after the first, in which no row has anything."""
        rows = [row for row in self.rows if len(row) > 1]
        kept = [
            not number or not rows or any(row[number] not in ("", ABSENT) for row in rows)
            for number in range(len(self.header))
        ]
        return replace(
            self,
            header=tuple(compress(self.header, kept)),
            rows=tuple(tuple(compress(row, kept)) if len(row) > 1 else row for row in self.rows),
            left=tuple(compress(self.left, kept)),
            keys=None if self.keys is None else sum(kept[: self.keys]),
        )

    def full_rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the rows, headings within the table as wide as the others."""
        for row in self.rows:
            yield row if len(row) > 1 else (row[0], *[""] * (len(self.header) - 1))


@dataclass(frozen=True, slots=True)
class Table:
    """Rows and their columns.

    Attributes:
        columns: in their order, those in data and those that are shown.
        rows: among them, in no data, texts are headings, and tuples of texts are rows that are shown as they are.
        about: what all rows share; CSV has it before the cells of each row.
        foot: rows of texts below, such as totals, in no data.
        keys: columns after these may go to further tables where a terminal is too narrow; None: none may.
        fits: in a terminal of at least so many columns they never do; None: as their width has it.
        most: a terminal shows so many rows; None: all.
        can_shrink: whether it shows fewer on a first screen without room for them.
        spare: what it has, in words, where a first screen without room leaves it out; '': no such screen does.
        more: makes the line below from the rows that a terminal does not show; None: there is none.
        link: makes the address of a row's page, in HTML.
    """

    columns: Sequence[Column]
    rows: Sequence[Any]
    about: Mapping[str, Any] | None = None
    foot: Sequence[tuple[str, ...]] = ()
    keys: int | None = None
    fits: int | None = None
    most: int | None = None
    can_shrink: bool = False
    spare: str = ""
    more: Callable[[Sequence[Any]], str | None] | None = None
    link: Callable[[Any], str] | None = None

    def names(self) -> list[str]:
        """Return the names of CSV's columns."""
        return [*(self.about or {}), *(column.key for column in self.columns if column.key is not None)]

    def records(self) -> list[dict[str, Any]]:
        """Return the cells of each row by their keys, as JSON has them."""
        columns = {column.key: column for column in self.columns if column.key is not None}
        return [{key: column.cell(row) for key, column in columns.items()} for row in self._figures()]

    def _figures(self) -> list[Any]:
        return [row for row in self.rows if not isinstance(row, str | tuple)]

    def lines(self) -> list[dict[str, Any]]:
        """Return the cells of each line that CSV has."""
        return [{**(self.about or {}), **record} for record in self.records()]

    def shortened(self, rows: int | None) -> "Table":
        """Return the table as a terminal shows it: with so many rows at most if it can shrink."""
        most = self.most
        if most and rows and self.can_shrink:
            most = min(most, rows)
        if most and len(self.rows) == most + 1:
            most = None  # the line that counts the last row takes more room
        elif most and len(self.rows) > most and isinstance(self.rows[most - 1], str):
            most -= 1  # no heading without a row
        return replace(self, most=most)

    def grid(self, *, wide: bool = True, whole: bool = True) -> Grid:
        """Return the table as text: `wide` with all columns, `whole` with all rows, and columns without any figure."""
        columns = [each for each in self.columns if each.title is not None and each.wide in (None, wide)]
        writers = [_writer(column, self._figures()) for column in columns]
        rows: list[tuple[str, ...]] = []
        for row in (*(self.rows if whole else self.rows[: self.most]), *self.foot):
            match row:
                case str():
                    rows.append((row,))
                case tuple():
                    rows.append((*row, *[""] * (len(columns) - len(row))))
                case _:
                    rows.append(tuple(write(row) for write in writers))
        grid = Grid(
            header=tuple(column.title or "" for column in columns),
            rows=tuple(rows),
            keys=self.keys,
            fits=self.fits,
            left=tuple(column.left for column in columns),
            links=tuple(map(self.link, self.rows)) if self.link else (),
        )
        return grid if whole else grid.without_empty()


def data_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table that is only in data, with a column for each key of the rows."""
    return Table([Column(key) for key in dict.fromkeys(key for row in rows for key in row)], rows)


def _writer(column: Column, rows: Sequence[Any]) -> Callable[[Any], str]:
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
