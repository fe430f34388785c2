"""Time, energy and money for an item."""

from collections.abc import Iterator

from markupsafe import Markup

from gpuagent_collector.report.figures.costs import cost_figures
from gpuagent_collector.report.pieces import anchor_of, charts, heading, largest, prose
from gpuagent_collector.report.study import MOST_BLOCKS, Report
from gpuagent_collector.runs.cells import tell_apart


def write(report: Report) -> Iterator[Markup]:
    """Yield a chart for energy and one for money, where they are known; the metrics have the figures."""
    layout, facts = report.comparison.layout, report.comparison.facts
    found = [(block, cost_figures(block, facts, layout.sides)) for block in layout.blocks[:MOST_BLOCKS]]
    if not any(figures for _, figures in found):
        return
    prices = report.comparison.request.prices
    priced = f"prices are those of {prices.source}" if prices else "without a file of prices nothing has a cost"
    yield prose(
        "Each run is a small mark, the median of a side a large one. Energy is that of the run's GPUs alone; "
        f"{priced}. The tables above have the figures, under Energy and Cost."
    )
    for number, (block, figures) in enumerate(found):
        if figures and len(layout.blocks) > 1:
            yield heading(tell_apart(block, layout.blocks), anchor=anchor_of("costs", number))
        yield charts(figures)
    yield largest(MOST_BLOCKS, len(layout.blocks))
