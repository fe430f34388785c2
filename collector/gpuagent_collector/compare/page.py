"""A comparison as a document: the answer, the hardware, the metrics of each block, the warnings."""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpuagent_collector.compare.answer import answer
from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.compare.metric_table import metric_legend, metric_table
from gpuagent_collector.compare.plots import draw_charts, legend, phase_lines
from gpuagent_collector.compare.verdict_table import verdict_legend, verdict_table
from gpuagent_collector.output.document import Paragraph, Section, caveat_sections
from gpuagent_collector.output.sections import is_wide, print_heading, print_sections
from gpuagent_collector.output.text import harmless
from gpuagent_collector.runs.cells import describe, tell_apart
from gpuagent_collector.runs.specs import spec_table

_TWO_CHARTS_COLUMNS = 140


def build_document(comparison: Comparison, *, wide: bool) -> list[Section]:
    """Return the document; `wide` adds columns for which a narrow terminal has no room."""
    layout = comparison.layout
    differs = any(row.differs for row in comparison.specs)
    return [
        Section(
            heading=f"Comparison by {layout.facet.spoken}: {', '.join(layout.sides)}",
            parts=(
                Paragraph(text=answer(comparison)),
                verdict_table(comparison),
                Paragraph(text=verdict_legend(comparison)),
            ),
        ),
        Section(
            heading="Where" if differs else "Where: the same on all sides",
            parts=(spec_table(layout.sides, comparison.specs),),
        ),
        *_blocks(comparison, wide),
        *caveat_sections(comparison.caveats),
    ]


def _blocks(comparison: Comparison, wide: bool) -> Iterator[Section]:
    for block in comparison.figures.blocks:
        others = [cell.side for cell in block.block.cells if cell.runs and cell.side != block.block.baseline]
        yield Section(
            heading=tell_apart(block.block, comparison.layout.blocks),
            parts=(
                Paragraph(text=f"Ran as {describe(block.block)}"),
                *(metric_table(block, side, comparison, wide=wide) for side in others),
                Paragraph(text=metric_legend(comparison, block)),
            ),
        )


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Print the whole comparison as wide as the console."""
    print_sections(console, build_document(comparison, wide=is_wide(console)))
    traces = [trace for trace in comparison.traces if trace.curves]
    if not traces:
        return
    print_heading(console, "Over time: the median run of each side, 0 s where its measured phase began")
    console.print(Text(harmless(legend(traces))))
    columns = 2 if console.width >= _TWO_CHARTS_COLUMNS else 1
    charts = [Text.from_ansi(chart) for chart in draw_charts(traces, console.width // columns - 2)]
    grid = Table.grid(padding=(0, 2, 0, 0))
    for start in range(0, len(charts), columns):
        grid.add_row(*charts[start : start + columns])
    console.print(grid)
    for line in phase_lines(traces):
        console.print(Text(harmless(line), style="dim"))
