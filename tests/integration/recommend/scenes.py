"""Made-up runs on platforms of which it is known where they should run, and what bounds them there."""

from datetime import timedelta
from pathlib import Path

from tests.integration.compare.synthetic import EPOCH, RUN_SECONDS, SyntheticStore

PRICES = Path(__file__).with_name("prices.yaml")


def report(store: SyntheticStore, run_id: str, **results: float | str) -> None:
    """Add what a run's only rank reported."""
    store.report({"run_id": run_id, "time": EPOCH + timedelta(seconds=RUN_SECONDS)}, results)


def gke(store: SyntheticStore) -> None:
    """Add S0's question: a small FP32 model on an L4, an A100 and a T4, five times each, taking turns.

    The A100 is a little slower than the L4, since it waits for launches; the L4 computes at 70 % of what was measured
    on it in FP32. The T4 takes twice the L4's time, and why is not shown.
    """
    nodes = {
        "gke-l4": store.node("l4-node", "gke-l4", gpus=["NVIDIA L4"]),
        "gke-a100": store.node("a100-node", "gke-a100", gpus=["NVIDIA A100"]),
        "gke-t4": store.node("t4-node", "gke-t4", gpus=["Tesla T4"]),
    }
    rates = {"gke-l4": 1000.0, "gke-a100": 900.0, "gke-t4": 500.0}
    busy = {"gke-l4": 95.0, "gke-a100": 22.0, "gke-t4": 90.0}
    for repeat in range(5):
        for turn, (platform, node) in enumerate(nodes.items()):
            run_id = f"{platform}-{repeat}"
            start_seconds = (3 * repeat + turn) * (RUN_SECONDS + 1)
            throughput = rates[platform] * (1 + (repeat - 2) / 200)
            store.run(run_id, node, start_seconds=start_seconds, throughput=throughput, repeat=repeat + 1)
            # Steps of 64 items: at 1000 a second 0.064 s, in which 70 % of 10 TFLOPS are 448 GFLOP.
            step = {"model_flops_per_step": 448e9, "model_flops_fp32_per_step": 448e9}
            report(store, run_id, gpu_busy_share=busy[platform], data_wait_share=1.0, **step)
    store.run("ceilings", nodes["gke-l4"], start_seconds=9000, throughput=None, workload="ceilings")
    report(store, "ceilings", gemm_fp32_flops_per_second=10e12)
