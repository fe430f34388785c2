"""Made-up runs of several ranks, each rank on a GPU of its own where the node has some."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from tests.integration.compare.synthetic import EPOCH, RUN_SECONDS, Node, SyntheticStore

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
    turn = len(store.rows["run_requests"])
    run_id = f"run-{turn}"
    start_seconds = turn * (RUN_SECONDS + 1)
    store.run(
        run_id,
        node,
        start_seconds=start_seconds,
        throughput=throughput / ranks,
        parameters={"ranks": ranks, "batch-size": 64, **(parameters or {})},
        status=status,
        gpus=node.gpus[:ranks] if gpus is None else gpus,
        **run,
    )
    end = EPOCH + timedelta(seconds=start_seconds + RUN_SECONDS)
    for rank in range(ranks) if status == "succeeded" else ():
        common = {"session_id": node.session_id, "node_id": node.node_id, "run_id": run_id, "rank": rank, "time": end}
        rows = store.rows["results"]
        rows.append({**common, "name": "ranks", "value": float(ranks)})
        if rank:
            share = {"name": "throughput", "value": throughput / ranks, "unit": "items/s", "phase": "measure"}
            rows.append({**common, **share})
        if communication_percents:
            rows.append({**common, "name": "communication_share", "value": communication_percents[rank], "unit": "%"})
    return run_id


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
