"""How workloads scale, in words."""

from collections.abc import Iterable

from gpuagent_collector.compare.answer import interval
from gpuagent_collector.output.human import significant
from gpuagent_collector.scaling.figures import CurveFigures, RowFigures
from gpuagent_collector.scaling.names import KINDS, ranks_of, tell_apart
from gpuagent_collector.scaling.study import Study
from gpuagent_collector.statistics.shift import Shift

# More than these are left to the tables.
_SPOKEN_CURVES = 3


def answer(study: Study, warnings: int) -> str:
    """Return what the most ranks of each curve bring, and that there are warnings."""
    sentences = [_sentence(figures, study.curves) for figures in study.curves[:_SPOKEN_CURVES]]
    if len(study.curves) > _SPOKEN_CURVES:
        sentences.append(f"The tables have {len(study.curves) - _SPOKEN_CURVES} more.")
    if warnings:
        sentences.append(
            f"Read the {'warning' if warnings == 1 else f'{warnings} warnings'} below before acting on it."
        )
    return " ".join(sentences)


def _sentence(figures: CurveFigures, curves: Iterable[CurveFigures]) -> str:
    """Return what the most ranks bring that succeeded: there are such beside the baseline."""
    baseline = figures.curve.baseline
    row, speed_up, efficiency = [
        (row, row.speed_up, row.efficiency) for row in figures.rows if row.speed_up and row.efficiency
    ][-1]
    runs = f"{len(baseline.trials)} and {len(row.row.trials)} runs"
    return (
        f"{tell_apart(figures.curve, curves)}: {_gain(speed_up, row, baseline.ranks)} ({interval(speed_up)}, {runs}; "
        f"efficiency {significant(100 * efficiency.estimate)} %; {KINDS[figures.curve.settings.held]})"
        f"{_communication(row)}."
    )


def _gain(speed_up: Shift, row: RowFigures, ranks: int) -> str:
    return f"{significant(speed_up.estimate)} times the throughput on {ranks_of([row.row.ranks])} as on {ranks}"


def _communication(row: RowFigures) -> str:
    share = row.measures.get("communication_percent")
    return "" if share is None else f", communication {significant(share)} % of kernel time"
