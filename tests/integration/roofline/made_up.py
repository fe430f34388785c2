"""Made-up runs that report FLOPs, bytes and roofs, in round figures so that answers can be computed by hand.

A step takes 1 s, so that FLOPs are FLOP/s. The GPU's roofs: FP32 10 TFLOP/s and TF32 100 TFLOP/s measured, 20 and 200
stated; its memory moves 1 TB/s measured, 2 TB/s stated. So the measured ridges lie at 10 and at 100 FLOP/byte.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from tests.integration.compare.synthetic import EPOCH, RUN_SECONDS, Node, SyntheticStore

# Of 1 s each: the whole measured phase.
STEPS = 12

GPU = "NVIDIA H200"
DATASHEET = {
    "datasheet_fp32_flops_per_second": 20e12,
    "datasheet_tf32_flops_per_second": 200e12,
    "datasheet_dram_bytes_per_second": 2e12,
}
CEILINGS = {
    "gemm_fp32_flops_per_second": 10e12,
    "gemm_tf32_flops_per_second": 100e12,
    "gemm_tf32_4096_flops_per_second": 90e12,
    "dram_copy_bytes_per_second": 0.9e12,
    "dram_triad_bytes_per_second": 1e12,
}


def add_ceilings(store: SyntheticStore, node: Node, *, quick: bool = False, **results: float) -> str:
    """Add a run of `ceilings`, after the runs that are there; return its identity."""
    figures = {**CEILINGS, **DATASHEET, **results, **({"quick": 1.0} if quick else {})}
    return _add(store, node, figures, workload="ceilings", throughput=None, steps=0)


def add_trial(
    store: SyntheticStore,
    node: Node,
    results: Mapping[str, float],
    *,
    texts: Mapping[str, str] | None = None,
    dram_active_percent: float | None = None,
    busy_percent: float | None = None,
    step_seconds: float = 1.0,
    steps: int = STEPS,
    **run: Any,
) -> str:
    """Add a training run, after the runs that are there; return its identity."""
    busy = {} if busy_percent is None else {"gpu_busy_share": busy_percent}
    run_id = _add(
        store,
        node,
        {**DATASHEET, **results, **busy},
        texts={"device": GPU if node.gpus else "cpu", **(texts or {})},
        steps=steps,
        step_seconds=step_seconds,
        **run,
    )
    if dram_active_percent is not None:
        for sample in store.rows["gpu_samples"]:
            if sample["time"] >= _started(store, run_id):
                sample["dram_active_percent"] = dram_active_percent
    return run_id


def fp32(flops: float) -> dict[str, float]:
    """Return the results of a step that takes so many model FLOPs, all in FP32."""
    return {"model_flops_per_step": flops, "model_flops_fp32_per_step": flops}


def _add(
    store: SyntheticStore,
    node: Node,
    results: Mapping[str, float],
    *,
    steps: int,
    step_seconds: float = 1.0,
    texts: Mapping[str, str] | None = None,
    **run: Any,
) -> str:
    turn = len(store.rows["run_requests"])
    run_id = f"run-{turn}"
    start_seconds = turn * (RUN_SECONDS + 1)
    store.run(run_id, node, start_seconds=start_seconds, **run)
    if run.get("status", "succeeded") != "succeeded":
        return run_id
    end = EPOCH + timedelta(seconds=start_seconds + RUN_SECONDS)
    common = {"session_id": node.session_id, "node_id": node.node_id, "run_id": run_id, "rank": 0, "time": end}
    named = {"device": GPU if node.gpus else "cpu", **(texts or {})}
    store.rows["results"] += [{**common, "name": name, "value_text": text} for name, text in named.items()]
    store.rows["results"] += [{**common, "name": name, "value": value} for name, value in results.items()]
    store.rows["steps"] = [row for row in store.rows["steps"] if row["run_id"] != run_id]
    for step in range(steps):
        # Handing a step to a GPU takes less than the step.
        times = {"wall_seconds": step_seconds / 10 if node.gpus else step_seconds}
        gpu = {"gpu_seconds": step_seconds} if node.gpus else {}
        at = {**common, "time": end - timedelta(seconds=1), "phase": "measure", "step": step, "items": 1.0}
        store.rows["steps"].append({**at, **times, **gpu})
    return run_id


def _started(store: SyntheticStore, run_id: str) -> Any:
    return next(row["time"] for row in store.rows["run_requests"] if row["run_id"] == run_id)
