"""Writers of documents: to a terminal, and as Markdown."""

from collections.abc import Iterable, Iterator

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from gpuagent_collector.output.document import Bullets, Grid, Paragraph, Section
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
            console.print(Padding(_renderable(part), (0, 0, 1, 0)))


def print_heading(console: Console, heading: str) -> None:
    """Print the heading of a section."""
    console.print(Rule(Text(harmless(heading), style="bold", overflow="ellipsis"), align="left", style="dim"))


def _renderable(part: Paragraph | Bullets | Grid) -> RenderableType:
    if isinstance(part, Paragraph):
        return Text(harmless(part.text))
    if isinstance(part, Grid):
        return _table(part)
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
        elif isinstance(part, Bullets):
            yield "\n".join(f"- {escaped(text)}  \n  → {remedy}" for text, remedy in part.points)
        else:
            columns = range(len(part.header))
            right = (column >= part.figures_from for column in columns)
            # A heading within the table keeps its row as wide as the others.
            rows = (row if len(row) > 1 else (row[0], *[""] * (len(columns) - 1)) for row in part.rows)
            yield "\n".join(markdown_table(part.header, right, rows))
