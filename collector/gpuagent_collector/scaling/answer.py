"""The scaling of workloads in words."""

from collections.abc import Iterable

from gpuagent_collector.output.document import in_short, read_warnings
from gpuagent_collector.output.human import significant
from gpuagent_collector.runs.words import interval, percent
from gpuagent_collector.scaling.figures import CurveFigures
from gpuagent_collector.scaling.names import KINDS, ranks_of, tell_apart
from gpuagent_collector.scaling.study import Study

# The tables have the others.
_SPOKEN_CURVES = 3


def answer(study: Study, warnings: int) -> str:
    """Return the gain of the most ranks of each curve, and a pointer to the warnings."""
    sentences = [_sentence(figures, study.curves) for figures in study.curves]
    return " ".join([*in_short(sentences, most=_SPOKEN_CURVES), *read_warnings(warnings)])


def _sentence(figures: CurveFigures, curves: Iterable[CurveFigures]) -> str:
    """Return the gain of the most ranks with successful runs; there are some beside the baseline."""
    baseline = figures.curve.baseline
    row, speed_up, efficiency = [
        (row, row.speed_up, row.efficiency) for row in figures.rows if row.speed_up and row.efficiency
    ][-1]
    runs = f"{len(baseline.trials)} and {len(row.row.trials)} runs"
    share = row.measures.get("communication_percent")
    communication = "" if share is None else f", communication {significant(share)} % of kernel time"
    return (
        f"{tell_apart(figures.curve, curves)}: {significant(speed_up.estimate)} times the throughput on "
        f"{ranks_of([row.row.ranks])} as on {baseline.ranks} ({interval(speed_up)}, {runs}; "
        f"efficiency {percent(efficiency.estimate)}; {KINDS[figures.curve.settings.held]}){communication}."
    )
