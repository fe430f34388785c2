"""The figures of a scaling curve, and its name."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from gpuagent_collector.metrics import BY_NAME, Metric
from gpuagent_collector.prices.kinds import ITEMS_PER_MONEY
from gpuagent_collector.runs.words import distinguishing
from gpuagent_collector.scaling.curves import Curve, Held, Row
from gpuagent_collector.statistics.shift import Shift, estimate_shift
from gpuagent_collector.statistics.summaries import median_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A figure beside the throughput: `of` computes it from a run's metrics; None: one is absent."""

    name: str
    unit: str
    of: Callable[[Mapping[str, float]], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFigures:
    """The figures of one number of ranks.

    Attributes:
        throughput: median over the runs, items/s; None: no run succeeded.
        low, high: 95 % interval of that median; None: too few runs for one.
        speed_up: ratio of the throughput to the baseline's; None for the baseline itself and without runs.
        efficiency: the speed-up as a share of the ratio of ranks.
        measures: medians over those runs that have the measure, by name.
    """

    row: Row
    throughput: float | None
    low: float | None
    high: float | None
    speed_up: Shift | None
    efficiency: Shift | None
    measures: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveFigures:
    """A curve and the figures of each of its rows, in their order."""

    curve: Curve
    rows: tuple[RowFigures, ...]


def compute_curve(curve: Curve, measures: Sequence[Measure]) -> CurveFigures:
    """Return the figures of a curve, with these measures of each row."""
    baseline = _throughputs(curve.baseline)
    return CurveFigures(curve=curve, rows=tuple(_row(row, curve.baseline, baseline, measures) for row in curve.rows))


def known_measures(derived: Iterable[Metric]) -> tuple[Measure, ...]:
    """Return every measure, with those that follow from prices, in the order in which programs get them."""
    return (*MEASURES, *(_metric(metric) for metric in derived if metric.name.startswith(f"{ITEMS_PER_MONEY.stem}_")))


def _row(row: Row, baseline: Row, reference: list[float], measures: Sequence[Measure]) -> RowFigures:
    values = _throughputs(row)
    low, high = median_interval(values) or (None, None)
    of_runs = {measure.name: [measure.of(trial.metrics) for trial in row.trials] for measure in measures}
    known = {name: [value for value in found if value is not None] for name, found in of_runs.items()}
    speed_up = estimate_shift(reference, values) if values and row is not baseline else None
    return RowFigures(
        row=row,
        throughput=median(values) if values else None,
        low=low,
        high=high,
        speed_up=speed_up,
        efficiency=_scale(speed_up, baseline.ranks / row.ranks) if speed_up else None,
        measures={name: median(found) for name, found in known.items() if found},
    )


def _throughputs(row: Row) -> list[float]:
    return [trial.metrics["throughput"] for trial in row.trials]


def _scale(shift: Shift, factor: float) -> Shift:
    low, high = (None if end is None else end * factor for end in (shift.low, shift.high))
    return replace(shift, estimate=shift.estimate * factor, low=low, high=high)


def _metric(metric: Metric) -> Measure:
    return Measure(name=metric.name, unit=metric.unit, of=lambda metrics: metrics.get(metric.name))


def _per_joule(metrics: Mapping[str, float]) -> float | None:
    """Return the throughput by the mean power of the run's GPUs."""
    joules, seconds = metrics.get("gpu_energy_joules"), metrics.get("measure_seconds")
    return metrics["throughput"] * seconds / joules if joules and seconds else None


# Every measure that needs no prices.
MEASURES: tuple[Measure, ...] = (
    _metric(BY_NAME["step_seconds"]),
    _metric(BY_NAME["communication_percent"]),
    _metric(BY_NAME["exposed_communication_percent"]),
    _metric(BY_NAME["items_per_gpu_second"]),
    Measure(name="items_per_gpu_joule", unit="items/J", of=_per_joule),
    _metric(BY_NAME["gpus"]),
)


# Way to grow → its name.
KINDS = {
    Held.RANK_BATCH: "weak scaling",
    Held.TOTAL_SAMPLES: "weak scaling, total samples fixed",
    Held.GLOBAL_BATCH: "strong scaling",
    Held.UNKNOWN: "scaling, weak or strong not known",
}


def tell_apart(curve: Curve, curves: Iterable[CurveFigures]) -> str:
    """Return the curve's workload and the settings that distinguish it from the other curves."""
    own, others = settings_of(curve), [settings_of(other.curve) for other in curves]
    telling = distinguishing(own, (other for other in others if other["workload"] == own["workload"]))
    return " ".join([curve.settings.workload, *(f"{name}={value}" for name, value in telling.items())])


def settings_of(curve: Curve) -> dict[str, str]:
    """Return everything in which the runs of a curve agree, by name."""
    settings = curve.settings
    place = {
        "platform": settings.platform,
        "environment": settings.environment,
        "image": settings.image,
        "interference": settings.interference,
        "limits": settings.limits,
        "GPU": curve.gpus,
    }
    named = {"workload": settings.workload, **{name: value or "none" for name, value in place.items()}}
    parameters = {name: str(value) for name, value in json.loads(settings.parameters).items()}
    return named | parameters | {name: f"{amount:,}" for name, amount in settings.amounts}


def ranks_of(numbers: Iterable[int]) -> str:
    """Return numbers of ranks in words: 1 rank; 2, 4 ranks."""
    several = sorted(set(numbers))
    return f"{', '.join(map(str, several))} rank{'s' * (several != [1])}"
