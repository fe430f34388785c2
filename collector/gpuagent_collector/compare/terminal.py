"""A comparison in the terminal."""

from collections.abc import Iterable

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.compare.page import build_document
from gpuagent_collector.compare.plots import draw_charts, legend, phase_lines
from gpuagent_collector.output.document import Bullets, Grid, Paragraph, Section
from gpuagent_collector.output.text import harmless

# From this width on there is room for ranges and intervals.
_WIDE_COLUMNS = 120
_TWO_CHARTS_COLUMNS = 140


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Print the whole comparison as wide as the console is."""
    print_sections(console, build_document(comparison, wide=is_wide(console)))
    _print_series(console, comparison)


def is_wide(console: Console) -> bool:
    """Return whether the console has room for the columns that not everybody needs."""
    return console.width >= _WIDE_COLUMNS


def print_sections(console: Console, sections: Iterable[Section]) -> None:
    """Print a document as wide as the console is."""
    for section in sections:
        _print_heading(console, section.heading)
        for part in section.parts:
            console.print(_renderable(part))


def _print_heading(console: Console, heading: str) -> None:
    console.print(Rule(Text(harmless(heading), style="bold", overflow="ellipsis"), align="left", style="dim"))


def _renderable(part: Paragraph | Bullets | Grid) -> RenderableType:
    if isinstance(part, Paragraph):
        return Padding(Text(harmless(part.text)), (0, 0, 1, 0))
    return Padding(_bullets(part) if isinstance(part, Bullets) else _table(part), (0, 0, 1, 0))


def _bullets(bullets: Bullets) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column()
    table.add_column()
    for text, remedy in bullets.points:
        table.add_row(Text("!", style="yellow bold"), Text(harmless(text)))
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
    """Return a cell; one that is indented keeps that where it is folded."""
    indent = len(text) - len(text.lstrip(" "))
    return Padding(Text(harmless(text.lstrip(" "))), (0, 0, 0, indent)) if indent else Text(harmless(text))


def _print_series(console: Console, comparison: Comparison) -> None:
    traces = [trace for trace in comparison.traces if trace.curves]
    if not traces:
        return
    _print_heading(console, "Over time: the median run of each side, 0 s where its measured phase began")
    console.print(Text(harmless(legend(traces))))
    columns = 2 if console.width >= _TWO_CHARTS_COLUMNS else 1
    charts = [Text.from_ansi(chart) for chart in draw_charts(traces, console.width // columns - 2)]
    grid = Table.grid(padding=(0, 2, 0, 0))
    for start in range(0, len(charts), columns):
        grid.add_row(*charts[start : start + columns])
    console.print(grid)
    for line in phase_lines(traces):
        console.print(Text(harmless(line), style="dim"))
