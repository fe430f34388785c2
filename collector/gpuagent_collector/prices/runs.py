"""The costs of runs, from their figures and the prices of their nodes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuagent_collector.metrics import Metric
from gpuagent_collector.prices import price as money
from gpuagent_collector.prices.jobs import find_costs
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.cells import first_few
from gpuagent_collector.runs.data import Facts
from gpuagent_collector.runs.job_runs import are_jobs, read_chosen

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

    price: money.Price
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
    costs = {**dict(_node_costs(metrics, stays)), **dict(_energy_costs(metrics, stays))}
    found = {kind.metric(currency): cost for kind, cost in costs.items()}
    if _kilowatt_hour(stays) and "gpu_energy_run_joules" in metrics:
        found[money.GPU_KILOWATT_HOURS] = metrics["gpu_energy_run_joules"] / _JOULES_PER_KILOWATT_HOUR
    return {**found, **dict(_carbon(metrics, stays))}


def _node_costs(metrics: Mapping[str, float], stays: Sequence[Stay]) -> Iterator[tuple[money.Kind, float]]:
    """Yield the costs of allocated nodes; nothing where one node's price is unknown."""
    per_second = [stay.price.instance_hour / _SECONDS_PER_HOUR for stay in stays if stay.price.instance_hour]
    if len(per_second) < len(stays):
        return
    if "run_seconds" in metrics:
        paid_seconds = [
            metrics["run_seconds"] + stay.waited_seconds * stay.price.provisioning_included for stay in stays
        ]
        yield money.COST_PER_RUN, sum(rate * seconds for rate, seconds in zip(per_second, paid_seconds, strict=True))
    if throughput := metrics.get("throughput"):
        per_item = sum(per_second) / throughput
        yield money.COST_PER_MILLION_ITEMS, per_item * _MILLION
        yield money.ITEMS_PER_MONEY, 1 / per_item
        if "items_per_epoch" in metrics:
            yield money.COST_PER_EPOCH, per_item * metrics["items_per_epoch"]


def _energy_costs(metrics: Mapping[str, float], stays: Sequence[Stay]) -> Iterator[tuple[money.Kind, float]]:
    """Yield the costs of measured energy, with the overhead of the building.

    GPUs and CPUs separately: where only one side has both, a sum would compare a part with a whole.
    """
    rate = _kilowatt_hour(stays)
    if rate is None:
        return
    per_joule = rate / _JOULES_PER_KILOWATT_HOUR
    if "gpu_energy_run_joules" in metrics:
        yield money.GPU_ELECTRICITY_PER_RUN, metrics["gpu_energy_run_joules"] * per_joule
    if "gpu_energy_per_item_joules" in metrics:
        yield money.GPU_ELECTRICITY_PER_MILLION_ITEMS, metrics["gpu_energy_per_item_joules"] * per_joule * _MILLION
    items = metrics.get("throughput", 0.0) * metrics.get("measure_seconds", 0.0)
    if "cpu_energy_joules" in metrics and items:
        yield money.CPU_ELECTRICITY_PER_MILLION_ITEMS, metrics["cpu_energy_joules"] / items * per_joule * _MILLION


def _carbon(metrics: Mapping[str, float], stays: Sequence[Stay]) -> Iterator[tuple[Metric, float]]:
    """Yield the greenhouse gases of the GPUs' measured energy; nothing where nodes differ in the intensity."""
    intensities = {
        None
        if price.carbon_grams_per_kilowatt_hour is None
        else price.carbon_grams_per_kilowatt_hour * (price.pue or 1)
        for price in (stay.price for stay in stays)
    }
    grams = intensities.pop() if len(intensities) == 1 else None
    if grams is None:
        return
    if "gpu_energy_run_joules" in metrics:
        yield money.GPU_CARBON_PER_RUN, metrics["gpu_energy_run_joules"] / _JOULES_PER_KILOWATT_HOUR * grams
    if "gpu_energy_per_item_joules" in metrics:
        joules = metrics["gpu_energy_per_item_joules"] * _MILLION
        yield money.GPU_CARBON_PER_MILLION_ITEMS, joules / _JOULES_PER_KILOWATT_HOUR * grams


def _kilowatt_hour(stays: Sequence[Stay]) -> float | None:
    """Return the price of a kWh at the computer; None: nodes differ in it, and only their sum is known."""
    rates = {
        stay.price.kilowatt_hour * stay.price.pue if stay.price.kilowatt_hour and stay.price.pue else None
        for stay in stays
    }
    return rates.pop() if len(rates) == 1 else None


def with_costs(ask: Ask, facts: Facts, prices: money.Prices | None) -> Facts:
    """Return the facts with the costs of each run among its metrics, and those metrics in `derived`.

    Without prices the facts are unchanged. A run has no costs where the price of one of its nodes is unknown, or where
    its nodes are paid in two currencies.
    """
    if prices is None:
        return facts
    waits = ask(_WAITS, [list(facts.metrics)]) if any(one.provisioning_included for one in prices.entries) else []
    waited_seconds = {row["run_id"]: row["waited_seconds"] for row in waits}
    if are_jobs(list(facts.metrics)):
        costs = _costs_of_jobs(ask, facts, prices)
    else:
        costs = {run_id: _costs(run_id, facts, prices, waited_seconds.get(run_id, 0.0)) for run_id in facts.metrics}
    named = {run_id: {metric.name: cost for metric, cost in of_run.items()} for run_id, of_run in costs.items()}
    platforms = {platform for run_id in costs for platform, _, _ in _nodes(run_id, facts)}
    lacking = sorted({str(each) for each in platforms - {entry.platform for entry in prices.entries}})
    unpriced = {run_id: _why_unpriced(run_id, facts, prices, lacking) for run_id, of_run in costs.items() if not of_run}
    return replace(
        facts,
        metrics=facts.columns.joined(named),
        derived=_in_order(costs),
        prices=prices.source,
        unpriced=unpriced,
    )


def _nodes(run_id: str, facts: Facts) -> Iterator[tuple[str | None, set[str], str | None]]:
    """Yield the platform, the names of the used GPUs and the instance type of each of a run's nodes."""
    nodes = {session["node_id"]: session for session in facts.sessions.get(run_id, [])}
    for node_id, node in nodes.items():
        devices = [device for device in facts.devices.get(run_id, []) if device["node_id"] == node_id]
        yield node["platform"], {device["name"] for device in devices if device["name"]}, node["instance_type"]


def _costs(run_id: str, facts: Facts, prices: money.Prices, waited_seconds: float) -> dict[Metric, float]:
    found = [prices.of_node(*node) for node in _nodes(run_id, facts)]
    stays = [Stay(price=price, waited_seconds=waited_seconds) for price in found if price]
    return derive(facts.metrics[run_id], stays) if len(stays) == len(found) else {}


def _costs_of_jobs(ask: Ask, facts: Facts, prices: money.Prices) -> dict[str, dict[Metric, float]]:
    """Return the cost of each job, which pays the part of its nodes that it held."""
    rows = read_chosen(ask, facts.metrics)
    found: dict[str, dict[Metric, float]] = {run_id: {} for run_id in facts.metrics}
    for run_id, (cost, currency) in zip(rows, find_costs(ask, list(rows.values()), prices), strict=True):
        if cost is not None and currency is not None:
            found[run_id][money.COST_PER_RUN.metric(currency)] = cost
    return found


# Of platforms without an entry.
_MOST_NAMED = 4


def _why_unpriced(run_id: str, facts: Facts, prices: money.Prices, lacking: Sequence[str]) -> str:
    """Return why a run has no cost; `lacking` are all platforms without an entry, which are named together."""
    found: set[str] = set()
    for platform, devices, instance_type in _nodes(run_id, facts):
        price = prices.of_node(platform, devices, instance_type)
        if str(platform) in lacking:
            known = sorted({entry.platform for entry in prices.entries})
            named = f"platform{'s' if lacking[1:] else ''} {first_few(lacking, _MOST_NAMED)}"
            return f"{prices.source} has no entry for the {named}, only for {', '.join(known)}"
        if price is None:
            used = ", ".join(sorted(devices)) or "a run without a GPU"
            machine = f" on {instance_type}" if instance_type else ""
            return f"{prices.source} has no entry for {used}{machine} among those of {platform}"
        found.add(price.currency)
    if len(found) > 1:
        return f"their nodes are paid in {' and '.join(sorted(found))}"
    if "run_seconds" not in facts.metrics[run_id]:
        return "no duration is stored"
    return f"{prices.source} has no instance_hour for them, and their energy was not measured"


def why_unpriced(facts: Facts) -> str:
    """Return why most runs have no cost, or all in one currency; '' where none lacks it, or no prices were given."""
    currencies = sorted(money.currencies_of(facts.derived))
    if facts.unpriced:
        return Counter(facts.unpriced.values()).most_common(1)[0][0]
    if len(currencies) > 1:
        return f"costs are in {' and '.join(currencies)}"
    return f"{facts.prices} has no instance_hour for them" if facts.prices and not currencies else ""


def _in_order(costs: Mapping[str, Mapping[Metric, float]]) -> tuple[Metric, ...]:
    """Return all metrics that some run has, those of a kind together."""
    present = {metric for of_run in costs.values() for metric in of_run}
    in_money = (kind.metric(currency) for kind in money.KINDS for currency in sorted(money.currencies_of(present)))
    return tuple(metric for metric in (*money.PHYSICAL, *in_money) if metric in present)


# The wait of each run after the earlier ones on its node: an agent executes one after the other.
_WAITS = """
SELECT run_id, greatest(0, least(  -- least and greatest ignore NULL
    epoch(started_at - queued_at), epoch(started_at - max(ended_at) OVER earlier)
)) AS waited_seconds
FROM runs
WHERE started_at IS NOT NULL
WINDOW earlier AS (PARTITION BY session_id ORDER BY started_at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
QUALIFY run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))"""
