"""Made-up runs of several ranks, each rank on a GPU of its own where the node has some."""

from collections.abc import Mapping
from typing import Any

from tests.integration.compare.synthetic import Node, SyntheticStore

S2_SAMPLES = 8192
# VGG-16 on one GPU and on two with DDP, in batches of 64: time by number of ranks.
S2_MILLISECONDS = {1: 84_090, 2: 44_417}


def add_ranked(
    store: SyntheticStore,
    node: Node,
    ranks: int,
    throughput: float,
    *,
    communication_percents: tuple[float, ...] = (),
    parameters: Mapping[str, Any] | None = None,
    status: str = "succeeded",
    gpus: tuple[int, ...] | None = None,
    **run: Any,
) -> str:
    """Add a run whose ranks share its throughput evenly, after those that are there; return its identity."""
    share = throughput / ranks
    asked = {"ranks": ranks, "batch-size": 64, **(parameters or {})}
    used = node.gpus[:ranks] if gpus is None else gpus
    ended = store.next_run(node, throughput=share, parameters=asked, status=status, gpus=used, **run)
    for rank in range(ranks) if status == "succeeded" else ():
        store.report(ended, {"ranks": float(ranks)}, rank=rank)
        if rank:
            store.report(ended, {"throughput": share}, rank=rank, unit="items/s", phase="measure")
        if communication_percents:
            store.report(ended, {"communication_share": communication_percents[rank]}, rank=rank, unit="%")
    return str(ended["run_id"])


def add_s2(store: SyntheticStore, *, repeats: int = 5) -> None:
    """Add S2's runs of VGG-16: 8192 samples in batches of 64 on one GPU and on two, taking turns, 1 % apart."""
    node = store.node("lab-1", "lab", gpus=["NVIDIA A100", "NVIDIA A100"])
    for repeat in range(repeats):
        for ranks, milliseconds in S2_MILLISECONDS.items():
            add_ranked(
                store,
                node,
                ranks,
                1000 * S2_SAMPLES / milliseconds * (1 + (repeat - repeats // 2) / 100),
                communication_percents=(19.8, 21.5) if ranks == 2 else (),
                parameters={"steps": S2_SAMPLES // 64 // ranks, "precision": "default"},
                workload="vgg16",
                repeat=repeat + 1,
            )
