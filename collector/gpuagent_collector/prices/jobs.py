"""The costs of jobs: each pays the share of its nodes that it held."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuagent_collector.prices.price import Prices
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.jobs import read_parts

_HOUR_SECONDS = 3600.0

_NODE_GPUS = """
SELECT session_id, list(name)[1:64] AS names FROM session_devices WHERE parent_device_id IS NULL GROUP BY session_id
"""


def find_costs(
    ask: Ask, rows: Sequence[Mapping[str, Any]], prices: Prices
) -> Iterator[tuple[float | None, str | None]]:
    """Yield the cost of each job and its currency; None where a price is unknown."""
    gpus = {each["session_id"]: each["names"] for each in ask(_NODE_GPUS)}
    for parts in read_parts(ask, rows):
        owners: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for part in parts:
            owners[part["owner_id"]].append(part)
        nodes = [_node_cost(owner, gpus, prices) for owner in owners.values()]
        currencies = {currency for _, currency in nodes}
        amounts = [amount for amount, _ in nodes if amount is not None]
        if len(amounts) == len(nodes) and len(currencies) == 1:
            yield sum(amounts), currencies.pop()
        else:
            yield None, None


def _node_cost(
    parts: Sequence[Mapping[str, Any]], gpus: Mapping[int, Sequence[str]], prices: Prices
) -> tuple[float | None, str | None]:
    """Return the cost of an owner on its node.

    It pays the part of the node's GPUs that it held; without any, that of the CPUs; None: neither is known.
    """
    node = parts[0]
    names = gpus.get(node["session_id"], [])
    price = prices.of_node(node["platform"], names, node["instance_type"])
    if price is None or price.instance_hour is None:
        return None, None
    held = sum(1 for part in parts if part["device_id"] is not None and part["is_held"] != 0)
    cores, threads = node["held_cores"], node["cpu_threads"]
    if held and names:
        part = held / len(names)
    elif cores and threads and not (names and node["kind"] == "slurm" and node["is_held"] is None):
        part = min(1.0, cores / threads)
    else:
        return None, None
    hours = (node["last_at"] - node["started_at"]).total_seconds() / _HOUR_SECONDS
    return part * hours * price.instance_hour, price.currency
