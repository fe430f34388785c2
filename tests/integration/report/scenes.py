"""A store of which a report has something to say in every chapter: two platforms, GPUs, traces, roofs and ranks."""

from datetime import timedelta
from math import exp, sin
from typing import Any

from tests.integration.compare.ranked import add_ranked
from tests.integration.compare.synthetic import EPOCH, RUN_SECONDS, SETUP_SECONDS, Node, SyntheticStore
from tests.integration.profile.traced import STEPS, kernel, operator
from tests.integration.recommend.scenes import report

PRICES = """
- {platform: gke-l4, currency: USD, instance_hour: 0.9}
- {platform: gke-a100, currency: USD, instance_hour: 3.6}
"""

GPUS = {"gke-l4": "NVIDIA L4", "gke-a100": "NVIDIA A100"}
# Items a second: the A100 takes 1.26 times as many.
RATES = {"gke-l4": 9_400.0, "gke-a100": 11_800.0}

_BUSY = {"gke-l4": 93.0, "gke-a100": 41.0}
_REPEATS = 7
_KERNELS = {
    "gke-l4": (
        kernel("ampere_sgemm_128x64_tn", 2.1, calls=6),
        kernel("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(Params<float>)", 1.4, calls=4),
        kernel("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int)", 0.6, calls=21),
        kernel("Memcpy HtoD (Pinned -> Device)", 0.2, kind="memcpy"),
        operator("aten::convolution_backward", 1.1, 2.9),
        operator("aten::addmm", 0.4, 1.3),
    ),
    "gke-a100": (
        kernel("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw", 0.7, calls=4),
        kernel("ampere_sgemm_128x64_tn", 0.5, calls=6),
        kernel("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int)", 0.3, calls=21),
        kernel("Memcpy HtoD (Pinned -> Device)", 0.2, kind="memcpy"),
        operator("aten::convolution_backward", 1.2, 0.8),
        operator("aten::addmm", 0.4, 0.4),
    ),
}


def everything(store: SyntheticStore) -> None:
    """Add MNIST on an L4 and an A100, seven times each and taking turns, and VGG-16 on one and two A100."""
    nodes = {
        "gke-l4": store.node("l4-node", "gke-l4", gpus=["NVIDIA L4"], driver_version="570.86.15"),
        "gke-a100": store.node("a100-node", "gke-a100", gpus=["NVIDIA A100"] * 2, driver_version="580.65.06"),
    }
    for repeat in range(_REPEATS):
        for turn, (platform, node) in enumerate(nodes.items()):
            _train(store, node, platform, repeat, start_seconds=(2 * repeat + turn) * (RUN_SECONDS + 1))
    _measure_roofs(store, nodes)
    for repeat in range(5):
        for platform, node in nodes.items():
            for ranks in (1, 2) if platform == "gke-a100" else (1,):
                rate = {1: 97.0, 2: 184.0}[ranks] * (1 if platform == "gke-a100" else 0.4) * (1 + (repeat - 2) / 100)
                shares = (18.0, 21.0) if ranks == 2 else ()
                asked: dict[str, Any] = {"parameters": {"precision": "default"}, "workload": "vgg16"}
                add_ranked(store, node, ranks, rate, communication_percents=shares, repeat=repeat + 1, **asked)


def _train(store: SyntheticStore, node: Node, platform: str, repeat: int, start_seconds: float) -> None:
    run_id = f"mnist-{platform}-{repeat}"
    rate = RATES[platform] * store.chance.gauss(1, 0.01)
    run: dict[str, Any] = {"repeat": repeat + 1, "texts": {"precision": "fp32", "torch_version": "2.13.0"}}
    before = {table: len(store.rows[table]) for table in ("steps", "gpu_samples")}
    command = f'["python", "-m", "gpuagent_workloads", "run", "mnist", "--batch-size", "64", "--seed", "{repeat}"]'
    store.run(run_id, node, start_seconds=start_seconds, throughput=rate, gpus=node.gpus[:1], command=command, **run)
    del store.rows["steps"][before["steps"] :]
    _add_steps(store, node, run_id, start_seconds, 64 / rate)
    for number, sample in enumerate(store.rows["gpu_samples"][before["gpu_samples"] :]):
        sample.update(_gpu(number / 2 / len(node.gpus), platform, store.chance.gauss(0, 1)))
    flops = {"model_flops_per_step": 12e9, "model_flops_fp32_per_step": 12e9, "minimum_bytes_per_step": 2.4e8}
    report(store, run_id, gpu_busy_share=_BUSY[platform], data_wait_share=2.0, **flops)
    at = {"session_id": node.session_id, "node_id": node.node_id, "run_id": run_id, "rank": 0, "time": EPOCH}
    store.rows["op_times"] += [{**at, "steps": STEPS, **operation} for operation in _KERNELS[platform]]


def _add_steps(store: SyntheticStore, node: Node, run_id: str, start_seconds: float, seconds: float) -> None:
    begin = EPOCH + timedelta(seconds=start_seconds + 3)
    at = {"session_id": node.session_id, "node_id": node.node_id, "run_id": run_id, "rank": 0, "phase": "measure"}
    for step in range(120):
        took = seconds * (0.97 + 0.03 * exp(store.chance.gauss(0, 0.8)))
        time = begin + timedelta(seconds=step / 10)
        store.rows["steps"].append({**at, "time": time, "step": step, "wall_seconds": took, "items": 64.0})


def _gpu(seconds: float, platform: str, chance: float) -> dict[str, float]:
    busy = seconds >= SETUP_SECONDS
    share = _BUSY[platform] / 100 if busy else 0.0
    warm = 1 - exp(-seconds / 6)
    return {
        "utilization_percent": max(0.0, min(100.0, 104 * share + 2 * chance)) if busy else 0.0,
        "sm_active_percent": max(0.0, 70 * share + 2 * sin(seconds) + chance) if busy else 0.0,
        "tensor_active_percent": max(0.0, 12 * share + chance) if busy else 0.0,
        "dram_active_percent": max(0.0, 34 * share + chance) if busy else 0.0,
        "memory_used_bytes": int(2.1e9 if busy else 5e8),
        "power_watts": 28 + 44 * share * (1 if platform == "gke-l4" else 4) + chance,
        "temperature_celsius": 38 + 24 * warm * share,
        "sm_clock_mhz": 1980.0 - 90 * warm if busy else 210.0,
    }


def _measure_roofs(store: SyntheticStore, nodes: dict[str, Node]) -> None:
    for number, (platform, node) in enumerate(nodes.items()):
        run_id = f"ceilings-{platform}"
        store.run(run_id, node, start_seconds=9000 + 20 * number, throughput=None, workload="ceilings")
        fast = 1 if platform == "gke-l4" else 2
        report(store, run_id, device=GPUS[platform], gemm_fp32_flops_per_second=fast * 9.1e12)
        report(store, run_id, dram_triad_bytes_per_second=fast * fast * 0.28e12)
        report(store, run_id, datasheet_dram_bytes_per_second=fast * fast * 0.3e12)
        report(store, run_id, datasheet_fp32_flops_per_second=fast * 10.1e12)
