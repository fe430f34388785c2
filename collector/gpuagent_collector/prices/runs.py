"""Costs of runs: from the prices of their nodes."""

from collections.abc import Mapping
from dataclasses import replace

from gpuagent_collector.metrics import Metric
from gpuagent_collector.prices.derive import Stay, derive
from gpuagent_collector.prices.kinds import GPU_KILOWATT_HOURS, KINDS, currencies_of
from gpuagent_collector.prices.price import Prices
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.data import Facts


def with_costs(ask: Ask, facts: Facts, prices: Prices | None) -> Facts:
    """Return the facts with the costs of each run among its metrics, and those metrics in `derived`.

    Without prices the facts are unchanged. A run has no costs where the price of one of its nodes is unknown, or where
    its nodes are paid in two currencies.
    """
    if prices is None:
        return facts
    waits = ask(_WAITS, [list(facts.metrics)]) if any(one.provisioning_included for one in prices.entries) else []
    waited_seconds = {row["run_id"]: row["waited_seconds"] for row in waits}
    costs = {run_id: _costs(run_id, facts, prices, waited_seconds.get(run_id, 0.0)) for run_id in facts.metrics}
    named = {run_id: {metric.name: cost for metric, cost in of_run.items()} for run_id, of_run in costs.items()}
    return replace(
        facts,
        metrics={run_id: {**facts.metrics[run_id], **of_run} for run_id, of_run in named.items()},
        derived=_in_order(costs),
        prices=prices.source,
    )


def _costs(run_id: str, facts: Facts, prices: Prices, waited_seconds: float) -> dict[Metric, float]:
    nodes = {session["node_id"]: session for session in facts.sessions.get(run_id, [])}
    found = []
    for node_id, node in nodes.items():
        devices = [device for device in facts.devices.get(run_id, []) if device["node_id"] == node_id]
        used = {device["name"] for device in devices if device["name"]}
        found.append(prices.of_node(node["platform"], used, node["instance_type"]))
    stays = [Stay(price=price, waited_seconds=waited_seconds) for price in found if price]
    return derive(facts.metrics[run_id], stays) if len(stays) == len(found) else {}


def _in_order(costs: Mapping[str, Mapping[Metric, float]]) -> tuple[Metric, ...]:
    """Return all metrics that some run has, those of a kind together."""
    present = {metric for of_run in costs.values() for metric in of_run}
    in_money = (kind.metric(currency) for kind in KINDS for currency in sorted(currencies_of(present)))
    return tuple(metric for metric in (GPU_KILOWATT_HOURS, *in_money) if metric in present)


# The wait of each run after the earlier ones on its node: an agent executes one after the other.
_WAITS = """
SELECT run_id, greatest(0, least(  -- least and greatest ignore NULL
    epoch(started_at - queued_at), epoch(started_at - max(ended_at) OVER earlier)
)) AS waited_seconds
FROM runs
WHERE started_at IS NOT NULL
WINDOW earlier AS (PARTITION BY session_id ORDER BY started_at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
QUALIFY run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))"""
