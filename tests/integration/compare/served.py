"""Runs of servers of language models at several loads."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.integration.compare.synthetic import Node, SyntheticStore

# p90 of the time to the first token by load, in seconds: a is the quicker one while few ask.
TTFT: Mapping[str, Mapping[float, float]] = {"a": {1: 0.05, 4: 0.10, 8: 0.90}, "b": {1: 0.10, 4: 0.15, 8: 0.18}}


def add_served(
    store: SyntheticStore,
    node: Node,
    server: str,
    rate: float,
    ttft: float,
    repeat: int,
    command: Sequence[str] = (),
    url: str | None = None,
    **more: Any,
) -> None:
    parameters: dict[str, Any] = {"rate": rate, "server": server, "serve": f"start {server}"}
    parameters |= {"input": "256", "slo-ttft": 200.0}
    if url:
        parameters |= {"serve": None, "url": url}
    if server == "unnamed":
        parameters["server"] = None
    request = {"workload": "serve-load", "experiment": "e", "repeat": repeat, "parameters": parameters}
    if command:
        request["command"] = json.dumps(command)
    at = store.next_run(node, throughput=None, **request)
    store.report(at, {"throughput": 100 * rate}, unit="tokens/s", phase="measure")
    first = {"ttft_p50_seconds": ttft / 2, "ttft_p90_seconds": ttft}
    store.report(at, {**first, "tpot_p90_seconds": 0.01, "goodput": rate, **more})


def add_servers(store: SyntheticStore) -> None:
    """Add seven repeats of two servers at three loads, made in turns."""
    node = store.node("spruce", "lab", gpus=["NVIDIA L4"])
    for repeat in range(1, 8):
        for rate in (1, 4, 8):
            for server in "ab":
                add_served(store, node, server, rate, TTFT[server][rate] * (1 + 0.01 * repeat), repeat)


def add_searches(store: SyntheticStore, searches: Mapping[str, Mapping[str, float]]) -> None:
    """Add a search for the highest rate of each server, with what it reports."""
    node = store.node("spruce", "lab", gpus=["NVIDIA L4"])
    for server, reported in searches.items():
        parameters = {"find": "rate", "rate": 1.0, "server": server, "slo-ttft": 200.0, "slo-tpot": 20.0}
        at = store.next_run(
            node, throughput=None, workload="serve-load", experiment="e", repeat=1, parameters=parameters
        )
        store.report(at, {"throughput": 900.0}, unit="tokens/s", phase="measure")
        store.report(at, {"ttft_p50_seconds": 0.1, "search_bets": 20.0, **reported})
