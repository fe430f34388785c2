"""The measured limits of the workloads on each side."""

from collections.abc import Iterator

from markupsafe import Markup

from gpuagent_collector.recommend.export import bounds_legend, bounds_table, why
from gpuagent_collector.report.pieces import anchor_of, folded, heading, largest, prose, table
from gpuagent_collector.report.study import MOST_BLOCKS, Report
from gpuagent_collector.runs.cells import tell_apart


def write(report: Report) -> Iterator[Markup]:
    """Yield for each block what is shown in words, and the figures of all limits."""
    layout = report.comparison.layout
    for number, (block, reasons) in enumerate(zip(layout.blocks[:MOST_BLOCKS], report.reasons, strict=False)):
        name = tell_apart(block, layout.blocks)
        if len(layout.blocks) > 1:
            yield heading(name, anchor=anchor_of("bounds", number))
        yield prose(" ".join(why(reasons, layout.facet.preposition)))
        figures = table(bounds_table(reasons), f"What bounds {name}")
        yield figures if any(one.shown for one in reasons) else folded("What was measured", figures)
    yield largest(MOST_BLOCKS, len(layout.blocks))
    yield prose(bounds_legend(), class_="quiet")
