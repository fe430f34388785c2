"""The costs of a run: computed on demand, because prices change."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuagent_collector.metrics import Metric
from gpuagent_collector.prices.kinds import (
    COST_PER_EPOCH,
    COST_PER_MILLION_ITEMS,
    COST_PER_RUN,
    CPU_ELECTRICITY_PER_MILLION_ITEMS,
    GPU_ELECTRICITY_PER_MILLION_ITEMS,
    GPU_ELECTRICITY_PER_RUN,
    GPU_KILOWATT_HOURS,
    ITEMS_PER_MONEY,
    Kind,
)
from gpuagent_collector.prices.price import Price

_SECONDS_PER_HOUR = 3600
_JOULES_PER_KILOWATT_HOUR = 3.6e6
_MILLION = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """A run's time on one of its nodes.

    Attributes:
        price: of the node.
        waited_seconds: from the end of the run before on the node until the start.
    """

    price: Price
    waited_seconds: float


def derive(metrics: Mapping[str, float], stays: Sequence[Stay]) -> dict[Metric, float]:
    """Return the known costs of a run.

    Args:
        metrics: the run's stored figures, by name.
        stays: one for each node of the run. In several currencies there are no costs.
    """
    currencies = {stay.price.currency for stay in stays}
    if len(currencies) != 1:
        return {}
    (currency,) = currencies
    costs = {**dict(_of_time(metrics, stays)), **dict(_of_electricity(metrics, stays))}
    found = {kind.metric(currency): cost for kind, cost in costs.items()}
    if _kilowatt_hour(stays) and "gpu_energy_run_joules" in metrics:
        found[GPU_KILOWATT_HOURS] = metrics["gpu_energy_run_joules"] / _JOULES_PER_KILOWATT_HOUR
    return found


def _of_time(metrics: Mapping[str, float], stays: Sequence[Stay]) -> Iterator[tuple[Kind, float]]:
    """Yield the costs of allocated nodes; nothing where one node's price is unknown."""
    per_second = [stay.price.instance_hour / _SECONDS_PER_HOUR for stay in stays if stay.price.instance_hour]
    if len(per_second) < len(stays):
        return
    if "run_seconds" in metrics:
        paid_seconds = [
            metrics["run_seconds"] + stay.waited_seconds * stay.price.provisioning_included for stay in stays
        ]
        yield COST_PER_RUN, sum(rate * seconds for rate, seconds in zip(per_second, paid_seconds, strict=True))
    if throughput := metrics.get("throughput"):
        per_item = sum(per_second) / throughput
        yield COST_PER_MILLION_ITEMS, per_item * _MILLION
        yield ITEMS_PER_MONEY, 1 / per_item
        if "items_per_epoch" in metrics:
            yield COST_PER_EPOCH, per_item * metrics["items_per_epoch"]


def _of_electricity(metrics: Mapping[str, float], stays: Sequence[Stay]) -> Iterator[tuple[Kind, float]]:
    """Yield the costs of measured energy, with the overhead of the building.

    GPUs and CPUs separately: where only one side has both, a sum would compare a part with a whole.
    """
    rate = _kilowatt_hour(stays)
    if rate is None:
        return
    per_joule = rate / _JOULES_PER_KILOWATT_HOUR
    if "gpu_energy_run_joules" in metrics:
        yield GPU_ELECTRICITY_PER_RUN, metrics["gpu_energy_run_joules"] * per_joule
    if "gpu_energy_per_item_joules" in metrics:
        yield GPU_ELECTRICITY_PER_MILLION_ITEMS, metrics["gpu_energy_per_item_joules"] * per_joule * _MILLION
    items = metrics.get("throughput", 0.0) * metrics.get("measure_seconds", 0.0)
    if "cpu_energy_joules" in metrics and items:
        yield CPU_ELECTRICITY_PER_MILLION_ITEMS, metrics["cpu_energy_joules"] / items * per_joule * _MILLION


def _kilowatt_hour(stays: Sequence[Stay]) -> float | None:
    """Return the price of a kWh at the computer; None: nodes differ in it, and only their sum is known."""
    rates = {
        stay.price.kilowatt_hour * stay.price.pue if stay.price.kilowatt_hour and stay.price.pue else None
        for stay in stays
    }
    return rates.pop() if len(rates) == 1 else None
