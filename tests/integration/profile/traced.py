"""Made-up runs with traces: of given operations, or of those that a GPU was recorded to run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuagent_workloads.training.trace.figures import device_operations, read_activities
from tests.integration.compare.synthetic import Node, SyntheticStore

RECORDED = Path(__file__).parents[2] / "fixtures" / "traces" / "h200_small_network.json"
# Traced.
STEPS = 3


def kernel(name: str, milliseconds: float, *, calls: int = 1, kind: str = "kernel") -> dict[str, Any]:
    """Return what the GPU did under one name, a step."""
    return {"kind": kind, "name": name, "calls": calls * STEPS, "gpu_seconds": milliseconds / 1e3 * STEPS}


def operator(name: str, host_milliseconds: float, gpu_milliseconds: float | None = None) -> dict[str, Any]:
    """Return what an operator did itself, a step, called once."""
    gpu = {} if gpu_milliseconds is None else {"gpu_self_seconds": gpu_milliseconds / 1e3 * STEPS}
    host = {"cpu_seconds": 1.0, "cpu_self_seconds": host_milliseconds / 1e3 * STEPS}
    return {"kind": "operator", "name": name, "calls": STEPS, **host, **gpu}


def recorded() -> list[dict[str, Any]]:
    """Return what an H200 did in three steps of a small network."""
    return [
        {"kind": one.kind, "name": one.name, "calls": one.calls, "gpu_seconds": one.gpu_seconds}
        for one in device_operations(read_activities(RECORDED))
    ]


def add_traced(
    store: SyntheticStore,
    node: Node,
    operations: Sequence[Mapping[str, Any]],
    *,
    results: Mapping[str, float] | None = None,
    ranks: int = 1,
    **run: Any,
) -> str:
    """Add a run whose ranks all have such a trace, after those that are there; return its identity."""
    ended = store.next_run(node, **run)
    for rank in range(ranks):
        at = {**ended, "rank": rank}
        store.rows["op_times"] += [{**at, "steps": STEPS, **operation} for operation in operations]
        store.report(at, results or {})
    return str(ended["run_id"])
