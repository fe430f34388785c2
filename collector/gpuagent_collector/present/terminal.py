"""Everything that is written to a terminal: its look, documents, and lists whose columns depend on its width.

A list shows the important columns first, the others where there is room.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from math import ceil
from typing import Any, TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.rule import Rule
from rich.segment import Segment
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from gpuagent_collector.present.answer import MORE, Answer, Bullets, Command, Part, Verbatim
from gpuagent_collector.present.chart import Chart
from gpuagent_collector.present.table import Grid, Table
from gpuagent_collector.present.values import ABSENT
from gpuagent_common.connection import WHOLE_ANSWER_VARIABLE
from gpuagent_common.text import harmless

# Blanks between two columns of a table.
GAP = 2


def plain_console(out: TextIO) -> Console:
    """Return a console that prints text as it is: no markup, no emoji names, no guessed highlights."""
    return Console(file=out, markup=False, emoji=False, highlight=False)


def plain_table() -> RichTable:
    """Return a table with a line below its header and nothing else, its columns GAP apart."""
    return RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")


def table_width(column_widths: list[int]) -> int:
    """Return the width of a `plain_table` with such columns."""
    return sum(column_widths) + GAP * (len(column_widths) - 1)


# From this width on there is room for columns that matter less.
_WIDE_COLUMNS = 120


# Of a terminal of 24 lines; the others are the place that was read, and the prompt.
_FIRST_LINES = 22
# Of tables that can shrink.
_FEWER_ROWS = range(8, 1, -1)


def print_answer(console: Console, answer: Answer) -> None:
    """Print an answer as wide as the console.

    A first screen without room leaves out the second of two warnings, then spare legends and charts, then rows of
    tables that can shrink, then a spare table, then rows of the others, then remedies, then the command that prints the
    rest.
    """
    usual: dict[str, Any] = {"warnings": 1, "whole": os.environ.get(WHOLE_ANSWER_VARIABLE)}
    parts = [*answer.parts, *(part for section in answer.sections for part in section.parts)]
    tables = [part for part in parts if isinstance(part, Table)]
    lengths = (None, *(_FEWER_ROWS if any(part.can_shrink for part in tables) else ()))
    whether = (True, False) if any(part.spare for part in tables) else (True,)
    fewer = [usual | {"spare": False, "rows": rows, "tables": all_} for all_ in whether for rows in lengths]
    least = fewer[-1] | {"remedies": not answer.caveats}
    for room in (usual | {"warnings": 2}, usual, *fewer, least, least | {"whole": usual["whole"] and ""}):
        with console.capture() as capture:
            _print_document(console, answer, room)
        # A word in quotes may be longer than a line.
        widths = (Text.from_ansi(line).cell_len for line in capture.get().splitlines())
        if answer.everything or sum(max(1, ceil(width / console.width)) for width in widths) <= _FIRST_LINES:
            break
    console.out(capture.get(), end="", highlight=False)


def _print_document(console: Console, answer: Answer, room: Mapping[str, Any]) -> None:
    wide, brief = console.width >= _WIDE_COLUMNS, not answer.everything
    for section in answer.document(wide=wide, brief=brief, cut=True, **room):
        heading = Text(harmless(section.heading), style="bold", overflow="ellipsis")
        console.print(Rule(heading, align="left", style="dim"))
        for part, after in zip_longest(section.parts, section.parts[1:]):
            if isinstance(part, Chart):
                _print_chart(console, part)
                continue
            if isinstance(part, Command):
                # A shell takes these lines as they are: no blank follows a backslash, and no quotes are broken.
                lines = [*Text(part.lead).wrap(console, console.width), *shell_lines(part.command, console.width)]
                console.print(Text("\n".join(map(str, lines))), soft_wrap=True)
                continue
            pieces = list(split_grid(part, console.width)) if isinstance(part, Grid) else [part]
            for piece in pieces:
                # Paragraphs are on lines of their own, and the number of further rows is the last row.
                is_joined = isinstance(part, str) or (piece is pieces[-1] and str(after).startswith(MORE))
                blanks = 0 if isinstance(after, str) and is_joined else 1
                console.print(Padding(_renderable(piece, console.width), (0, 0, blanks, 0)))


_SHELL_WORDS = re.compile(r"""(?:'[^']*'|"[^"]*"|[^\s'"])+""")


def shell_lines(command: str, width: int) -> list[str]:
    """Return a command on lines that continue one another; a word in quotes stays whole, however long."""
    lines: list[str] = []
    for word in _SHELL_WORDS.findall(harmless(command)):
        if lines and len(f"{lines[-1]} {word} \\") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(f"  {'  ' if lines else ''}{word}")
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


# From this width on two small charts are beside one another.
_TWO_CHARTS_COLUMNS = 140


def _print_chart(console: Console, chart: Chart) -> None:
    columns = 2 if chart.paired and console.width >= _TWO_CHARTS_COLUMNS else 1
    for line in chart.above:
        console.print(Text(harmless(line)))
    drawings = [Text.from_ansi(drawing) for drawing in chart.draw(console.width // columns)]
    grid = RichTable.grid(padding=(0, 2, 0, 0))
    for start in range(0, len(drawings), columns):
        grid.add_row(*drawings[start : start + columns])
    console.print(grid)
    for line in chart.below:
        console.print(Text(harmless(line), style="dim"))


# A wider column is folded before columns go to another table.
_FOLDABLE_WIDTH = 30
_BETWEEN_COLUMNS = 2

# Names keep so much where they are folded before figures.
_NAME_WIDTH = 16


def split_grid(grid: Grid, width: int) -> Iterator[Grid]:
    """Yield the table, or tables of as many of its columns as fit into `width`, each with its key columns."""
    if grid.fits is not None and width >= grid.fits:
        yield grid
        return
    if grid.keys is None:
        yield grid
        return
    tall = [row for row in (grid.header, *grid.rows) if len(row) > 1]
    widths = [
        min(max(cell_len(row[column]) for row in tall), _FOLDABLE_WIDTH) + _BETWEEN_COLUMNS
        for column in range(len(grid.header))
    ]
    room = width - sum(widths[: grid.keys])
    groups: list[list[int]] = []
    for column in range(grid.keys, len(grid.header)):
        if groups and sum(widths[other] for other in (*groups[-1], column)) <= room:
            groups[-1].append(column)
        else:
            groups.append([column])
    for group in groups:
        chosen = [*range(grid.keys), *group]

        def cut(row: tuple[str, ...], chosen: list[int] = chosen) -> tuple[str, ...]:
            return row if len(row) == 1 else tuple(row[column] for column in chosen)

        left = tuple(not grid.right_columns()[column] for column in chosen)
        yield replace(grid, header=cut(grid.header), rows=tuple(map(cut, grid.rows)), left=left)


def _list(grid: Grid) -> RenderableType:
    """Return a table of which not even the words fit as a list: below each row's names a line for each figure."""
    names = max(1, grid.right_columns().index(True) if True in grid.right_columns() else 1)
    header = " ".join(grid.header[:names]).strip()
    parts: list[RenderableType] = [Text(harmless(header), style="dim")] if header else []
    for row in grid.rows:
        parts.append(Text(harmless(" ".join(filter(None, row[:names]))), style="bold"))
        lines = RichTable.grid(padding=(0, GAP, 0, 0))
        lines.add_column(no_wrap=True)
        for title, cell in zip(grid.header[names:], row[names:], strict=False):
            lines.add_row(Padding(Text(harmless(title)), (0, 0, 0, GAP)), Text(harmless(cell)))
        parts += [lines] if lines.row_count else []
    return Group(*parts)


def _least_widths(grid: Grid) -> list[int]:
    """Return the widths below which a figure, or a word of another cell or of a header, would be broken."""
    rows = [row for row in grid.rows if len(row) > 1]

    def least(column: int, *, is_figure: bool) -> int:
        words = grid.header[column].split()
        for row in rows:
            words += [row[column]] if is_figure else row[column].split()
        return min(max(map(cell_len, words), default=0), _FOLDABLE_WIDTH)

    return [least(column, is_figure=is_figure) for column, is_figure in enumerate(grid.right_columns())]


def _renderable(part: Part, width: int) -> RenderableType:
    match part:
        case str():
            return Text(harmless(part))
        case Grid():
            return _table(part, width)
        case Verbatim():
            lines = "\n".join(harmless(line.expandtabs()) for line in part.text.split("\n"))
            return Text.assemble((f"{harmless(part.title)}\n", "bold"), lines)
        case Bullets():
            table = RichTable.grid(padding=(0, 1, 0, 0))
            table.add_column()
            table.add_column()
            for text, remedy in part.points:
                table.add_row(Text("!", style="yellow bold"), Text(harmless(text)))
                if remedy:
                    table.add_row("", Text(f"→ {remedy}", style="dim"))
            return table
    raise TypeError(part)


def _table(grid: Grid, width: int) -> RenderableType:
    if grid.keys is None and (grid.fits is None or width < grid.fits) and table_width(_least_widths(grid)) > width:
        return _list(grid)
    table = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    for name, figure in zip(grid.header, grid.right_columns(), strict=True):
        table.add_column(Text(harmless(name)), justify="right" if figure else "left", overflow="fold", no_wrap=False)
    rows = [row for row in grid.rows if len(row) > 1]
    widths = [max(map(cell_len, column)) for column in zip(grid.header, *rows, strict=True)]
    if table_width(widths) > width:
        least = _least_widths(grid)
        figures = [narrow if figure else None for narrow, figure in zip(least, grid.right_columns(), strict=True)]
        names = [min(most, _NAME_WIDTH) for most, narrow in zip(widths, figures, strict=True) if narrow is None]
        if table_width([*names, *filter(None, figures)]) <= width:  # then names are folded before figures
            for column, narrow in zip(table.columns, figures, strict=True):
                column.width = narrow
    for number, row in enumerate(grid.rows):
        if len(row) == 1:
            table.add_row(style=Style(meta={_HEADING: number}))
        else:
            table.add_row(*map(_cell, row))
    return _Headed(table, grid)


# The number of a heading within a table, in the style of its row.
_HEADING = "heading"


@dataclass(frozen=True, slots=True)
class _Headed:
    """A table with the headings of its grid across all columns, in place of the rows that are marked for them."""

    table: RichTable
    grid: Grid

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in console.render_lines(self.table, options, pad=False):
            marks = [each.style.meta[_HEADING] for each in line if each.style and _HEADING in each.style.meta]
            if marks:
                yield Text(harmless(self.grid.rows[marks[0]][0]), style="bold")
            else:
                yield from (*line, Segment.line())


def _cell(text: str) -> RenderableType:
    """Return a cell; an indented one stays indented where it is folded."""
    indent = len(text) - len(text.lstrip(" "))
    return Padding(Text(harmless(text.lstrip(" "))), (0, 0, 0, indent)) if indent else Text(harmless(text))


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
        below: whether its cells are below their rows where it has no room.
        cut: shortens its cells to a width, so that they are never folded; None: nothing does.
        is_optional: whether it is left out where no row has a value.
    """

    title: str
    show: Callable[[Row], str | None]
    rank: int
    style: Callable[[str], str] | None = None
    right: bool = False
    max_width: int | None = None
    below: bool = False
    cut: Callable[[Sequence[str], int], Sequence[str]] | None = None
    is_optional: bool = False


def print_list(columns: Sequence[ListColumn], rows: Sequence[Row], console: Console) -> None:
    """Print the rows with as many of the columns as fit."""
    console.print(list_table(columns, rows, console.width))


def list_table(columns: Sequence[ListColumn], rows: Sequence[Row], width: int) -> RenderableType:
    """Return the rows as a table with as many of the columns as fit into `width`, and some of the others below."""
    columns = [each for each in columns if not each.is_optional or any(each.show(row) for row in rows)]
    cells: list[Sequence[str]] = [[harmless(column.show(row) or ABSENT) for row in rows] for column in columns]
    chosen = _choose_columns(columns, cells, width)
    for index, most in chosen.items():
        if cut := columns[index].cut:
            cells[index] = cut(cells[index], most)
    below = [index for index, column in enumerate(columns) if column.below and index not in chosen]
    # Each row that has a line below is the last of a table.
    tables = [_list_part(columns, chosen, is_first=True)]
    for row in range(len(rows)):
        styled = ((columns[index].style, cells[index][row]) for index in chosen)
        tables[-1].add_row(*(Text(text, style=style(text) if style else "") for style, text in styled))
        words = " · ".join(cells[index][row] for index in below if cells[index][row] != ABSENT)
        if words:
            line = RichTable.grid()
            line.add_row(Padding(Text(words, style="dim"), (0, 0, 0, GAP)))
            tables += [line, _list_part(columns, chosen, is_first=False)]
    return Group(*(table for table in tables if table.row_count))


def _list_part(columns: Sequence[ListColumn], chosen: Mapping[int, int], *, is_first: bool) -> RichTable:
    """Return a table without rows, whose columns are as wide as those of the others; the first has a header."""
    table = plain_table()
    table.show_header = is_first
    for index, width in chosen.items():
        column = columns[index]
        table.add_column(column.title, justify="right" if column.right else "left", overflow="fold", width=width)
    return table


def _column_width(column: ListColumn, cells: Sequence[str]) -> int:
    widest = max(map(cell_len, (column.title, *cells)))
    return min(widest, column.max_width or widest)


# To so many characters a column without room is cut, and no further.
_LEAST_WIDTH = 16


def _choose_columns(columns: Sequence[ListColumn], cells: Sequence[Sequence[str]], width: int) -> Mapping[int, int]:
    """Return the indexes of the columns that fit, in order, with their widths; always that of the first by rank."""
    chosen: dict[int, int] = {}
    room = width + GAP
    for index in sorted(range(len(columns)), key=lambda index: columns[index].rank):
        needed = _column_width(columns[index], cells[index])
        if columns[index].cut and room - GAP >= _LEAST_WIDTH:
            needed = min(needed, room - GAP)
        if GAP + needed <= room or not chosen:
            chosen[index] = needed
            room -= GAP + needed
    return dict(sorted(chosen.items()))
