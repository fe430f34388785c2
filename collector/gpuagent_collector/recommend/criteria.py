"""What a place can be judged by: time, energy and cost, of an item where runs report a throughput, else of a run."""

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
    """One thing to judge by; of each, less is better.

    Attributes:
        name: as `--weigh` takes it.
        what: it is, in words.
        per: what it is taken by.
        unit: as metrics have it.
        of: takes a run's figures and returns its value, above 0; None: not known.
    """

    name: str
    what: str
    per: str
    unit: str
    of: Callable[[Metrics], float | None]


def find_criteria(block: Block, facts: Facts) -> tuple[Criterion, ...]:
    """Return the criteria of a block: by items where at least two of its sides have a throughput, else by runs."""
    with_items = [cell for cell in block.cells if any(_throughput(facts, run.run_id) for run in cell.runs)]
    if len(with_items) >= 2:
        return (*_BY_ITEM, *_cost(COST_PER_MILLION_ITEMS, "a million items", facts.derived))
    return (*_BY_RUN, *_cost(COST_PER_RUN, "a run", facts.derived))


def _throughput(facts: Facts, run_id: str) -> float | None:
    return facts.metrics.get(run_id, {}).get("throughput")


def _cost(kind: Kind, per: str, derived: Sequence[Metric]) -> tuple[Criterion, ...]:
    """Return the criterion of cost; none without prices, and none where they are in two currencies."""
    currencies = currencies_of(derived)
    if len(currencies) != 1:
        return ()
    metric = kind.metric(currencies.pop())
    return (Criterion(name="cost", what="cost", per=per, unit=metric.unit, of=_stored(metric.name)),)


def _stored(name: str) -> Callable[[Metrics], float | None]:
    """Return what takes a metric; what is 0 has no ratio, and is no measure of anything that was done."""
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
