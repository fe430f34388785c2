"""Made-up runs that report FLOPs, bytes and roofs, in round figures so that answers can be computed by hand.

A step takes 1 s, so that FLOPs are FLOP/s. The GPU's roofs: FP32 10 TFLOP/s and TF32 100 TFLOP/s measured, 20 and 200
stated; its memory moves 1 TB/s measured, 2 TB/s stated. So the measured ridges lie at 10 and at 100 FLOP/byte.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from tests.integration.compare.synthetic import Node, SyntheticStore

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
    dram_active_percent: float | None = None,
    busy_percent: float | None = None,
    steps: int = STEPS,
    datasheet: Mapping[str, float] = DATASHEET,
    **run: Any,
) -> str:
    """Add a training run, after the runs that are there; return its identity."""
    busy = {} if busy_percent is None else {"gpu_busy_share": busy_percent}
    earlier = len(store.rows["gpu_samples"])
    run_id = _add(store, node, {**datasheet, **results, **busy}, steps=steps, **run)
    if dram_active_percent is not None:
        for sample in store.rows["gpu_samples"][earlier:]:
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
    common = {**store.next_run(node, **run), "rank": 0}
    run_id: str = common["run_id"]
    if run.get("status", "succeeded") != "succeeded":
        return run_id
    named: dict[str, float | str] = {"device": GPU if node.gpus else "cpu", **(texts or {}), **results}
    store.report(common, named)
    store.rows["steps"] = [row for row in store.rows["steps"] if row["run_id"] != run_id]
    # Handing a step to a GPU takes less than the step.
    gpu = {"wall_seconds": step_seconds / 10, "gpu_seconds": step_seconds}
    times = gpu if node.gpus else {"wall_seconds": step_seconds}
    at = {**common, **times, "time": common["time"] - timedelta(seconds=1), "phase": "measure", "items": 1.0}
    store.rows["steps"] += [{**at, "step": step} for step in range(steps)]
    return run_id
