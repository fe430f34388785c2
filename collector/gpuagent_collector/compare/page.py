"""A comparison as a document: the answer, the hardware, the metrics of each block, the warnings."""

from collections.abc import Iterator
from dataclasses import replace

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpuagent_collector.compare.answer import answer, short_answer
from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.compare.plots import draw_charts, legend, phase_lines
from gpuagent_collector.compare.tables import metric_legend, metric_table, verdict_legend, verdict_table
from gpuagent_collector.output.document import Paragraph, Section, caveat_sections
from gpuagent_collector.output.sections import is_wide, print_heading, print_sections
from gpuagent_collector.runs.cells import describe, tell_apart
from gpuagent_collector.runs.specs import spec_table
from gpuagent_common.text import counted, harmless

_TWO_CHARTS_COLUMNS = 140

# A screen of 24 lines has no room for more.
_MOST_WARNINGS = 3
_MOST_VERDICTS = 5


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


def build_summary(comparison: Comparison) -> list[Section]:
    """Return the part of the document that fits on one screen: answer, verdicts and the gravest warnings."""
    document, verdicts = build_document(comparison, wide=False)[0], verdict_table(comparison)
    rows = [*verdicts.rows[:_MOST_VERDICTS]]
    if len(verdicts.rows) > len(rows):
        rows.append((f"… {len(verdicts.rows) - len(rows)} more",))
    shown, hidden = comparison.caveats[:_MOST_WARNINGS], len(comparison.caveats) - _MOST_WARNINGS
    more = f"{counted(hidden, 'more warning')}, " if hidden > 0 else ""
    return [
        replace(
            document,
            parts=(
                Paragraph(text=short_answer(comparison)),
                replace(verdicts, rows=tuple(rows)),
                Paragraph(text=verdict_legend(comparison).partition("small.")[0] + "small."),
            ),
        ),
        *caveat_sections([replace(each, text=f"{each.text} → {each.remedy}", remedy="") for each in shown]),
        Section(heading=f"--all shows {more}the metrics, the hardware and charts over time", parts=()),
    ]


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Print the comparison as wide as the console: a summary, or all of it where everything is requested."""
    if not comparison.request.everything:
        print_sections(console, build_summary(comparison))
        return
    print_sections(console, build_document(comparison, wide=is_wide(console)))
    traces = [trace for trace in comparison.traces if trace.curves]
    if not traces:
        return
    measured = any(phase.name == "measure" for trace in traces for phase in trace.phases)
    zero = "where its measured phase began" if measured else "at its start"
    print_heading(console, f"Over time: the median run of each side, 0 s {zero}")
    console.print(Text(harmless(legend(traces))))
    columns = 2 if console.width >= _TWO_CHARTS_COLUMNS else 1
    charts = [Text.from_ansi(chart) for chart in draw_charts(traces, console.width // columns - 2)]
    grid = Table.grid(padding=(0, 2, 0, 0))
    for start in range(0, len(charts), columns):
        grid.add_row(*charts[start : start + columns])
    console.print(grid)
    for line in phase_lines(traces):
        console.print(Text(harmless(line), style="dim"))
