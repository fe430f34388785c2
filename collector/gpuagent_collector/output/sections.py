"""Writers of documents: to a terminal, and as Markdown."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from gpuagent_collector.output.document import Bullets, Grid, Paragraph, Section, Verbatim
from gpuagent_collector.output.printing import escaped, markdown_table
from gpuagent_common.text import harmless

# From this width on there is room for columns that matter less.
_WIDE_COLUMNS = 120


def is_wide(console: Console) -> bool:
    """Return whether the console has room for columns that matter less."""
    return console.width >= _WIDE_COLUMNS


def print_sections(console: Console, sections: Iterable[Section]) -> None:
    """Print a document as wide as the console."""
    for section in sections:
        print_heading(console, section.heading)
        for part in section.parts:
            for piece in split_grid(part, console.width) if isinstance(part, Grid) else (part,):
                console.print(Padding(_renderable(piece), (0, 0, 1, 0)))


def print_heading(console: Console, heading: str) -> None:
    """Print the heading of a section."""
    console.print(Rule(Text(harmless(heading), style="bold", overflow="ellipsis"), align="left", style="dim"))


# A wider column is folded before columns go to another table.
_FOLDABLE_WIDTH = 30
_BETWEEN_COLUMNS = 2


def split_grid(grid: Grid, width: int) -> Iterator[Grid]:
    """Yield the table, or tables of as many of its columns as fit into `width`, each with its key columns."""
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

        figures_from = grid.figures_from if grid.figures_from < len(grid.header) else len(chosen)
        yield replace(grid, header=cut(grid.header), rows=tuple(map(cut, grid.rows)), figures_from=figures_from)


def _renderable(part: Paragraph | Bullets | Grid | Verbatim) -> RenderableType:
    if isinstance(part, Paragraph):
        return Text(harmless(part.text))
    if isinstance(part, Grid):
        return _table(part)
    if isinstance(part, Verbatim):
        text = "\n".join(harmless(line.expandtabs()) for line in part.text.split("\n"))
        return Text.assemble((f"{harmless(part.title)}\n", "bold"), text)
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column()
    table.add_column()
    for text, remedy in part.points:
        table.add_row(Text("!", style="yellow bold"), Text(harmless(text)))
        if remedy:
            table.add_row("", Text(f"→ {remedy}", style="dim"))
    return table


def _table(grid: Grid) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, header_style="bold")
    for index, name in enumerate(grid.header):
        figure = index >= grid.figures_from
        table.add_column(Text(harmless(name)), justify="right" if figure else "left", overflow="fold", no_wrap=False)
    for row in grid.rows:
        if len(row) == 1:
            table.add_row(Text(harmless(row[0]), style="bold"))
        else:
            table.add_row(*map(_cell, row))
    return table


def _cell(text: str) -> RenderableType:
    """Return a cell; an indented one stays indented where it is folded."""
    indent = len(text) - len(text.lstrip(" "))
    return Padding(Text(harmless(text.lstrip(" "))), (0, 0, 0, indent)) if indent else Text(harmless(text))


def to_markdown(sections: Iterable[Section]) -> str:
    """Return a document with its tables in GitHub's Markdown."""
    blocks = (block for section in sections for block in (f"## {escaped(section.heading)}", *_blocks(section)))
    return "\n\n".join(blocks)


def _blocks(section: Section) -> Iterator[str]:
    for part in section.parts:
        if isinstance(part, Paragraph):
            yield escaped(part.text)
        elif isinstance(part, Verbatim):
            # Indented, so that no line of the text can end it.
            lines = (f"    {harmless(line.expandtabs())}" for line in part.text.split("\n"))
            yield "\n".join([f"{escaped(part.title)}:", "", *lines])
        elif isinstance(part, Bullets):
            yield "\n".join(f"- {escaped(text)}  \n  → {remedy}" for text, remedy in part.points)
        else:
            yield "\n".join(markdown_table(part.header, part.right_columns(), part.full_rows()))
