"""Puts prices to runs: finds each run's nodes, and adds what it cost to its figures."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpuagent_collector.metrics import Metric
from gpuagent_collector.prices.derive import Stay, derive
from gpuagent_collector.prices.kinds import GPU_KILOWATT_HOURS, KINDS, currencies_of
from gpuagent_collector.prices.price import Prices
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.data import Facts, Record


def with_costs(ask: Ask, facts: Facts, prices: Prices | None) -> Facts:
    """Return the facts with what each run cost among its metrics, and those metrics in `derived`.

    Without prices the facts stay as they are. A run has no costs where the price of one of its nodes is not known, or
    where its nodes are paid in two currencies.
    """
    if prices is None:
        return facts
    waited_seconds = _waited_seconds(ask, list(facts.metrics)) if _asks_for_waits(prices) else {}
    costs = {run_id: _costs(run_id, facts, prices, waited_seconds.get(run_id, 0.0)) for run_id in facts.metrics}
    named = {run_id: {metric.name: cost for metric, cost in of_run.items()} for run_id, of_run in costs.items()}
    return replace(
        facts,
        metrics={run_id: {**facts.metrics[run_id], **of_run} for run_id, of_run in named.items()},
        derived=_in_order(costs),
        prices=prices.source,
    )


def _asks_for_waits(prices: Prices) -> bool:
    return any(price.provisioning_included for price in prices.entries)


def _waited_seconds(ask: Ask, run_ids: Sequence[str]) -> dict[str, float]:
    return {row["run_id"]: row["waited_seconds"] for row in ask(_WAITS, [run_ids])}


def _costs(run_id: str, facts: Facts, prices: Prices, waited_seconds: float) -> dict[Metric, float]:
    nodes = {session["node_id"]: session for session in facts.sessions.get(run_id, [])}
    found = [prices.of_node(*_kind_of_node(node, facts.devices.get(run_id, []))) for node in nodes.values()]
    stays = [Stay(price=price, waited_seconds=waited_seconds) for price in found if price]
    return derive(facts.metrics[run_id], stays) if len(stays) == len(found) else {}


def _kind_of_node(session: Record, devices: Sequence[Record]) -> tuple[str | None, set[str], str | None]:
    used = {device["name"] for device in devices if device["node_id"] == session["node_id"] and device["name"]}
    return session["platform"], used, session["instance_type"]


def _in_order(costs: Mapping[str, Mapping[Metric, float]]) -> tuple[Metric, ...]:
    """Return all metrics that some run has, those of a kind together."""
    present = {metric for of_run in costs.values() for metric in of_run}
    in_money = (kind.metric(currency) for kind in KINDS for currency in sorted(currencies_of(present)))
    return tuple(metric for metric in (GPU_KILOWATT_HOURS, *in_money) if metric in present)


# How long each run waited after those before it on its node had ended: an agent executes one after the other.
_WAITS = """
SELECT run_id, greatest(0, least(  -- least and greatest pass over NULL
    epoch(started_at - queued_at), epoch(started_at - max(ended_at) OVER earlier)
)) AS waited_seconds
FROM runs
WHERE started_at IS NOT NULL
WINDOW earlier AS (PARTITION BY session_id ORDER BY started_at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
QUALIFY run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))"""
