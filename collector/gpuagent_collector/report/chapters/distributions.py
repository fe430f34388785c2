"""The spread of single runs and single steps."""

from collections.abc import Iterator

from markupsafe import Markup

from gpuagent_collector.report.figures.distributions import runs_figure, steps_figure
from gpuagent_collector.report.pieces import anchor_of, charts, heading, largest, prose
from gpuagent_collector.report.study import MOST_BLOCKS, Report
from gpuagent_collector.runs.cells import tell_apart

_RUNS = "Runs are compared: each is a dot, from left to right in order of time; the line is their median."
_STEPS = (
    "Steps of a run are not independent of one another and prove nothing, but show how steady it was: by CUDA events "
    "where it has them, else by the clock; the axis ends at the 99th percentile."
)


def write(report: Report) -> Iterator[Markup]:
    """Yield for each block the dots of its runs and the times of their steps."""
    comparison = report.comparison
    blocks = comparison.layout.blocks
    yield prose(f"{_RUNS} {_STEPS}" if any(report.step_times) else _RUNS)
    for number, (block, times) in enumerate(zip(blocks[:MOST_BLOCKS], report.step_times, strict=True)):
        both = (runs_figure(block, comparison), steps_figure(times, comparison.layout.sides))
        figures = [figure for figure in both if figure]
        if figures and len(blocks) > 1:
            yield heading(tell_apart(block, blocks), anchor=anchor_of("distributions", number))
        yield charts(figures)
    yield largest(MOST_BLOCKS, len(blocks))
