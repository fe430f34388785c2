"""Made-up runs of the five studies: what nodes of two kinds would record, in round figures."""

from collections.abc import Callable, Mapping
from typing import Any

from tests.integration.compare.synthetic import Node, SyntheticStore
from tests.integration.profile.traced import add_traced, operator, recorded
from tests.integration.roofline.made_up import add_ceilings

REPEATS = 2

# Of every training run on a GPU, beside its throughput.
_WORK = {
    "model_flops_per_step": 4.58e9,
    "model_flops_fp32_per_step": 4.58e9,
    "minimum_bytes_per_step": 1e8,
    "gpu_busy_seconds_per_step": 5e-4,
    "gpu_gap_seconds_per_step": 1.9e-3,
    "kernels_per_step": 44.0,
    "sm_efficiency_estimated": 14.0,
    "occupancy_estimated": 16.0,
    "datasheet_fp32_flops_per_second": 67e12,
    "datasheet_tf32_flops_per_second": 495e12,
    "datasheet_dram_bytes_per_second": 4.8e12,
}
_COUNTED = {
    "executed_flops_per_step": 5e9,
    "executed_tensor_flops_per_step": 4e9,
    "executed_fp16_flops_per_step": 0.0,
    "executed_fp32_flops_per_step": 1e9,
    "dram_bytes_per_step": 1e8,
}
_FRONTIER: dict[str, tuple[int, int, int | None]] = {
    "frontier_conv1_fc1": (61, 61, None),
    "point_conv61_fc62": (61, 62, 1),
    "point_conv62_fc62": (62, 62, 0),
}


def _train(
    store: SyntheticStore, node: Node, workload: str, results: Mapping[str, float] | None = None, **run: Any
) -> str:
    """Add a traced training run with everything that a GPU and a node report; return its identity."""
    before = {table: len(store.rows[table]) for table in ("gpu_samples", "host_samples")}
    texts = {"device": "NVIDIA H200", "precision": "default"}
    run_id = add_traced(
        store,
        node,
        [*recorded(), operator("aten::conv2d", 0.3)],
        results={**_WORK, **(results or {})},
        workload=workload,
        texts=texts,
        **run,
    )
    for row in store.rows["results"]:
        if row["run_id"] == run_id and row["name"] == "throughput":
            row["unit"] = "images/s"
    for number, row in enumerate(store.rows["gpu_samples"][before["gpu_samples"] :]):
        row |= {"memory_utilization_percent": 20.0 + number % 7, "sm_active_percent": 30.0, "dram_active_percent": 12.0}
    for row in store.rows["host_samples"][before["host_samples"] :]:
        row |= {"cpu_user_percent": 30.0, "cpu_system_percent": 5.0, "cpu_iowait_percent": 1.0}
    return run_id


def _add_roofs(store: SyntheticStore, node: Node, experiment: str) -> None:
    run_id = add_ceilings(store, node)
    (request,) = [row for row in store.rows["run_requests"] if row["run_id"] == run_id]
    request["experiment"] = experiment


def accelerators(store: SyntheticStore) -> None:
    """Add three models on two kinds of GPU, and the roofs of both."""
    nodes = [
        store.node(f"node-{name}", f"gke-{name.lower()}", gpus=[f"NVIDIA {name}"], cuda_driver_version="13.0")
        for name in ("L4", "H200")
    ]
    _add_roofs(store, nodes[1], "accelerators")
    for repeat in range(1, REPEATS + 1):
        for factor, node in enumerate(nodes, 1):
            for workload in ("mnist", "gcn", "cifar10"):
                rate = factor * 1000.0 + 10 * repeat
                _train(store, node, workload, experiment="accelerators", repeat=repeat, throughput=rate)


def containers(store: SyntheticStore) -> None:
    """Add a CNN and an RNN in five environments, plain and with counters."""
    node = store.node("vm", "vm", gpus=["NVIDIA H200"])
    for repeat in range(1, REPEATS + 1):
        for number, environment in enumerate(("bare", "docker", "podman", "apptainer", "charliecloud")):
            asked: dict[str, Any] = {"environment": environment, "experiment": "containers", "repeat": repeat}
            for counters in ("none", "ncu"):
                counted = _COUNTED if counters == "ncu" else {}
                rate = 1000.0 + 5 * number + repeat
                for workload, model in (("mnist", {}), ("sentiment", {"model": "rnn"})):
                    parameters = {"batch-size": 64, "counters": counters, **model}
                    _train(store, node, workload, counted, throughput=rate, parameters=parameters, **asked)


def hpc_cloud(store: SyntheticStore) -> None:
    """Add BigGAN on two platforms, alone and beside a load, and on two GPUs of the first."""
    satori = store.node("node0101", "satori", gpus=["Tesla V100"] * 2)
    openshift = store.node("worker-1", "openshift", gpus=["Tesla V100"])
    for repeat in range(1, REPEATS + 1):
        for node in (satori, openshift):
            for beside in ("none", "cpu-burn"):
                asked: dict[str, Any] = {"interference": beside, "experiment": "hpc-cloud", "repeat": repeat}
                rate = 50.0 + repeat - 10 * (beside != "none")
                alone = {"ranks": 1, "batch-size": 64}
                _train(store, node, "biggan", throughput=rate, gpus=node.gpus[:1], parameters=alone, **asked)
        both = {"ranks": 2, "batch-size": 64}
        _train(
            store,
            satori,
            "biggan",
            {"ranks": 2.0},
            throughput=95.0,
            parameters=both,
            experiment="hpc-cloud",
            repeat=repeat,
        )


def layers(store: SyntheticStore) -> None:
    """Add single layers, both orders on GPU and CPU, one and two ranks, and stacks of layers."""
    node = store.node("lab-1", "lab", gpus=["NVIDIA A100"] * 2)
    one = node.gpus[:1]
    for repeat in range(1, REPEATS + 1):
        asked: dict[str, Any] = {"experiment": "layers", "repeat": repeat}
        for number, layer in enumerate(("relu", "maxpool", "conv", "linear"), 1):
            parameters = {"layer": layer, "batch-size": 256}
            _train(store, node, "layer", throughput=1000.0 * number, parameters=parameters, gpus=one, **asked)
        for order in ("normal", "swapped"):
            for device, steps, gpus in (("cuda", 50, one), ("cpu", 10, ())):
                parameters = {"batch-size": 128, "order": order, "device": device, "steps": steps, "ranks": 1}
                rate = 100.0 if device == "cuda" else 2.0
                _train(store, node, "vgg16", throughput=rate + repeat / 10, parameters=parameters, gpus=gpus, **asked)
        for ranks, steps in ((1, 128), (2, 64)):
            settings = {"ranks": ranks, "batch-size": 64, "steps": steps, "device": "auto", "order": "normal"}
            shares = {"communication_share": 0.2, "exposed_communication_share": 0.03, "ranks": float(ranks)}
            _train(
                store,
                node,
                "vgg16",
                shares if ranks > 1 else {"ranks": 1.0},
                throughput=100.0 * ranks,
                parameters=settings,
                gpus=node.gpus[:ranks],
                **asked,
            )
    _stacks(store, node)


def _stacks(store: SyntheticStore, node: Node) -> None:
    ended = store.next_run(node, workload="memory-limit", throughput=None, experiment="layers", parameters={"split": 2})
    for name, (conv, fc, fits) in _FRONTIER.items():
        figures: dict[str, float | None] = {"conv_layers": conv, "fc_layers": fc, "fits": fits}
        measured = {"step_seconds": 0.05, "peak_reserved_bytes": 5e9} if fits != 0 else {}
        if fits != 0:
            figures |= {"step_seconds": 0.109, "peak_reserved_bytes": 11e9}
        for gpu in (0, 1):
            part = {"conv_layers": conv // 2, "fc_layers": fc // 2, **measured}
            figures |= {f"gpu{gpu}_{field}": value for field, value in part.items()}
        store.report(ended, {f"{name}_{field}": float(value) for field, value in figures.items() if value is not None})
    store.report(ended, {"split": 2.0})


def vm_container(store: SyntheticStore) -> None:
    """Add three models in a virtual machine and in a container, whose image has a record."""
    node = store.node("vm-1", "gcp", gpus=["NVIDIA H200"])
    _add_roofs(store, node, "vm-container")
    record = {
        "size_bytes": 4_910_000_000,
        "layers": 9,
        "build_seconds": 199.7,
        "push_seconds": 60.0,
        "pull_seconds": 45.0,
    }
    for repeat in range(1, REPEATS + 1):
        for workload in ("resnet18", "resnet50", "alexnet"):
            for environment in ("bare", "docker"):
                asked: dict[str, Any] = {"environment": environment, "experiment": "vm-container", "repeat": repeat}
                run_id = _train(store, node, workload, throughput=500.0 + repeat, **asked)
                if environment == "docker":
                    store.rows["images"].append({**node.at(0), "run_id": run_id, **record})


STUDIES: dict[str, Callable[[SyntheticStore], None]] = {
    "accelerators": accelerators,
    "containers": containers,
    "hpc-cloud": hpc_cloud,
    "layers": layers,
    "vm-container": vm_container,
}


def add_studies(store: SyntheticStore) -> None:
    """Add the runs of all five studies."""
    for add in STUDIES.values():
        add(store)
