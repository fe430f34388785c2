"""The answer in words, and the verdicts that it rests on."""

from collections.abc import Iterator
from math import nan

from markupsafe import Markup

from gpuagent_collector.compare.answer import answer
from gpuagent_collector.compare.figures import Overall, Test
from gpuagent_collector.compare.tables import verdict_legend, verdict_rows, verdict_table
from gpuagent_collector.report.pieces import Axis, Pictures, prose, table
from gpuagent_collector.report.study import Report
from gpuagent_collector.statistics.shift import Scale, Shift

_PICTURES = (
    "In the pictures: the estimate with its interval around 1, what counts as equal shaded; filled where the interval "
    "excludes 1, hollow where it does not."
)


def write(report: Report) -> Iterator[Markup]:
    """Yield the same sentences as `collector compare`, the table of tests, and what its words mean."""
    comparison = report.comparison
    yield prose(answer(comparison), class_="answer")
    if not comparison.layout.is_compared:
        return
    shifts = [_shift(of) for _, of in verdict_rows(comparison)]
    axis = Axis.over([shift for shift in shifts if shift], comparison.figures.delta)
    pictures = Pictures(at=4, header=axis.header(), draw=lambda row: axis.draw(shifts[row]))
    yield table(verdict_table(comparison), "Verdicts", pictures=pictures)
    yield prose(f"{verdict_legend(comparison)} {_PICTURES}", class_="quiet")


def _shift(of: Test | Overall | None) -> Shift | None:
    """Return what is drawn in a row of the table; None: it is a heading."""
    if isinstance(of, Test):
        return of.judgement.shift
    if of is None:
        return None
    mean = of.mean
    # A mean is not tested, and nothing is drawn of a p-value.
    return Shift(scale=Scale.RATIO, estimate=mean.ratio, low=mean.low, high=mean.high, alpha=mean.alpha, p_value=nan)
