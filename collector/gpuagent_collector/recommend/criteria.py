"""The criteria for a place: time, energy and cost, per item where runs report a throughput, else per run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpuagent_collector.metrics import Metric
from gpuagent_collector.prices.kinds import COST_PER_MILLION_ITEMS, COST_PER_RUN, Kind, currencies_of
from gpuagent_collector.runs.cells import Block
from gpuagent_collector.runs.data import Facts

# A run's figures, by metric.
Metrics = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One criterion; less is better.

    Attributes:
        name: as in `--weigh`.
        what: its name in words.
        per: the amount of work that it is of.
        unit: a unit of metrics.
        of: returns its value from a run's figures, above 0; None: unknown.
    """

    name: str
    what: str
    per: str
    unit: str
    of: Callable[[Metrics], float | None]


def find_criteria(block: Block, facts: Facts) -> tuple[Criterion, ...]:
    """Return the criteria of a block: per item where at least two of its sides have a throughput, else per run."""
    with_items = [cell for cell in block.cells if any(facts.values(cell.runs, "throughput"))]
    if len(with_items) >= 2:
        return (*_BY_ITEM, *_cost(COST_PER_MILLION_ITEMS, "a million items", facts.derived))
    return (*_BY_RUN, *_cost(COST_PER_RUN, "a run", facts.derived))


def _cost(kind: Kind, per: str, derived: Sequence[Metric]) -> tuple[Criterion, ...]:
    """Return the criterion of cost; () without prices, and for prices in two currencies."""
    currencies = currencies_of(derived)
    if len(currencies) != 1:
        return ()
    metric = kind.metric(currencies.pop())
    return (Criterion(name="cost", what="cost", per=per, unit=metric.unit, of=_stored(metric.name)),)


def _stored(name: str) -> Callable[[Metrics], float | None]:
    """Return a reader of a metric; 0 is absent, because it has no ratio."""
    return lambda metrics: metrics.get(name) or None


def _seconds_per_item(metrics: Metrics) -> float | None:
    throughput = metrics.get("throughput")
    return 1 / throughput if throughput else None


_ENERGY = "GPUs' energy"
_BY_ITEM = (
    Criterion(name="time", what="time", per="an item", unit="seconds", of=_seconds_per_item),
    Criterion(name="energy", what=_ENERGY, per="an item", unit="joules", of=_stored("gpu_energy_per_item_joules")),
)
_BY_RUN = (
    Criterion(name="time", what="time", per="a run", unit="seconds", of=_stored("run_seconds")),
    Criterion(name="energy", what=_ENERGY, per="a run", unit="joules", of=_stored("gpu_energy_run_joules")),
)
