"""Stores for figures: three models on two places, many sides and workloads, ranks, and stacks of layers."""

import json
from datetime import timedelta

from tests.integration.compare.ranked import add_ranked
from tests.integration.compare.synthetic import EPOCH, SyntheticStore

MODELS = {"alexnet": 7000.0, "resnet18": 5000.0, "resnet50": 1800.0}


def models(store: SyntheticStore, *, repeats: int = 7) -> None:
    """Add three models on a virtual machine and in a container in it, each on two GPUs, with a loss by step."""
    for platform, share in (("vm", 1.0), ("container", 0.98)):
        node = store.node(platform, platform, gpus=["NVIDIA L4"] * 2)
        for workload, rate in MODELS.items():
            for repeat in range(repeats):
                throughput = rate * share * store.chance.gauss(1, 0.01)
                ended = store.next_run(node, workload=workload, throughput=throughput, repeat=repeat + 1)
                for step in range(20):
                    detail = json.dumps({"step": 10 * step, "value": 2.0 / (1 + step)})
                    event = {"event": "metric", "name": "loss", "rank": 0, "detail": detail}
                    store.rows["run_events"].append({**ended, **event, "time": EPOCH + timedelta(seconds=step)})


def ranks(store: SyntheticStore) -> None:
    """Add two models on one to eight ranks, six times each."""
    node = store.node("lab-1", "lab", gpus=["NVIDIA H200"] * 8)
    for repeat in range(6):
        for workload in ("resnet50", "vgg16"):
            for number in (1, 2, 4, 8):
                rate = 100 * number**0.93 * (1 + repeat / 100)
                add_ranked(store, node, number, rate, workload=workload, repeat=repeat + 1)


def stacks(store: SyntheticStore) -> None:
    """Add the points of two searches for the largest stack of layers: on one GPU, and split over two."""
    node = store.node("lab-1", "lab", gpus=["NVIDIA H200"] * 2)
    for split in (1, 2):
        ended = store.next_run(node, workload="memory-limit", throughput=None, parameters={"split": split})
        store.report(ended, {"split": float(split)})
        for conv, fc in ((1, 0), (1, 1), (0, 1)):
            point = {"conv_layers": 120.0 * conv / (conv + fc), "fc_layers": 120.0 * fc / (conv + fc)}
            point |= {"step_seconds": 0.11 * split}
            if split > 1:
                point |= {"gpu0_conv_layers": 30.0 * conv, "gpu0_fc_layers": 15.0 * fc, "gpu0_step_seconds": 0.09}
            store.report(ended, {f"frontier_conv{conv}_fc{fc}_{name}": value for name, value in point.items()})
        if split == 1:
            layers = {"point_conv62_fc62_conv_layers": 62.0, "point_conv62_fc62_fc_layers": 62.0}
            store.report(ended, {**layers, "point_conv62_fc62_fits": 0.0})


def links(store: SyntheticStore) -> None:
    """Add a run of `collectives` on each of two nodes with two and four GPUs, at nine sizes."""
    for gpus in (2, 4):
        node = store.node(f"lab-{gpus}", "lab", gpus=["NVIDIA H200"] * gpus)
        ended = store.next_run(node, workload="collectives", throughput=None, parameters={})
        figures = {"ranks": float(gpus)}
        for operation in ("all_reduce", "all_gather", "send_recv"):
            for size in (1 << power for power in range(10, 31, 3)):
                figures[f"{operation}_{size}_bytes_bus_bytes_per_second"] = 4e11 * size / (size + 2e6) / gpus
        store.report(ended, figures)
