"""Made-up fleets of nodes and GPUs, with faults at known places."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from tests.integration.compare.synthetic import EPOCH, RUN_SECONDS, Node, SyntheticStore

GPU = "NVIDIA H200"

DAY_SECONDS = 86_400
DAYS = 12

# The slow one of ten nodes.
BAD = 9

# Nodes of a fleet with faults.
CAPPED, SLOW, NARROW, OLD, FAULTY = 3, 5, 7, 9, 11
SLOW_RANK = 6
NODES = 14


def add_fleet(
    store: SyntheticStore,
    nodes: int = 12,
    *,
    rates: Mapping[int, float] | None = None,
    sessions: Mapping[int, Mapping[str, Any]] | None = None,
    repeats: int = 2,
    **run: Any,
) -> list[Node]:
    """Add nodes with a GPU each and runs of 1,000 items/s, 0.5 % apart by chance; some at other rates."""
    fleet = []
    for number in range(nodes):
        node = store.node(f"node-{number}", "fleet", gpus=[GPU], **(sessions or {}).get(number, {}))
        rate = 1000 * (rates or {}).get(number, 1.0)
        for _ in range(repeats):
            store.next_run(node, throughput=rate * store.chance.gauss(1, 0.005), **run)
        fleet.append(node)
    return fleet


def scatter(store: SyntheticStore, change: Callable[[dict[str, Any]], None] = lambda _row: None) -> None:
    """Let the samples of the GPUs scatter by chance; `change` alters each of them."""
    for row in store.rows["gpu_samples"]:
        # A sound fleet scatters too.
        row["power_watts"] = 600.0 + store.chance.gauss(0, 6)
        row["sm_clock_mhz"] = 1900.0 + store.chance.gauss(0, 8)
        row["temperature_celsius"] = 60.0 + store.chance.gauss(0, 1)
        change(row)


def add_link(store: SyntheticStore, node: Node, gpu: int, lanes: int) -> None:
    """Add a reading of the lanes of a GPU's link."""
    store.rows["gpu_health_samples"].append({**node.at(RUN_SECONDS, gpu), "pcie_width": lanes, "pcie_generation": 5})


def add_ranks(store: SyntheticStore, gpus: int, slow: int | None) -> Node:
    """Add runs of one rank a GPU; the slow rank never waits for the others."""
    node = store.node("dgx", "fleet", gpus=[GPU] * gpus)
    for _ in range(3):
        ended = store.next_run(node, throughput=100.0, gpus=node.gpus[:1])
        start = ended["time"] - timedelta(seconds=RUN_SECONDS)
        for rank in range(1, gpus):
            at = {"session_id": node.session_id, "node_id": node.node_id, "run_id": ended["run_id"]}
            device = {"device_id": node.gpus[rank], "found_by": "workload"}
            store.rows["run_devices"].append({**at, "time": start, "rank": rank, **device})
        for rank in range(gpus):
            waits = 0.2 if rank == slow else 30 + store.chance.gauss(0, 0.5)
            result = {"name": "exposed_communication_share", "value": waits, "unit": "%"}
            store.rows["results"].append({**ended, "rank": rank, **result})
    return node


def add_links(
    store: SyntheticStore,
    node: Node,
    *,
    rates: Mapping[tuple[str, int], float] | None = None,
    slow_gpu: int | None = None,
) -> dict[str, Any]:
    """Add a run of `collectives` on all GPUs of a node, at two sizes, 0.5 % apart by chance.

    `rates` are shares of the usual bandwidth of an operation at a size; the links of a slow GPU have half of it.
    """
    ended = store.next_run(node, workload="collectives", throughput=None, parameters={}, gpus=node.gpus[:1])
    ranks = len(node.gpus)
    at = {name: ended[name] for name in ("session_id", "node_id", "run_id")}
    start = ended["time"] - timedelta(seconds=RUN_SECONDS)
    for rank in range(1, ranks):
        device = {"device_id": node.gpus[rank], "found_by": "workload"}
        store.rows["run_devices"].append({**at, "time": start, "rank": rank, **device})

    def add(rank: int, name: str, value: float, unit: str | None) -> None:
        store.rows["results"].append({**ended, "rank": rank, "name": name, "value": value, "unit": unit})

    def add_point(name: str, size: int, bus: float, factor: float) -> None:
        add(0, f"{name}_{size}_bytes_seconds", size / (bus / factor), "s")
        add(0, f"{name}_{size}_bytes_algorithm_bytes_per_second", bus / factor, "bytes/s")
        add(0, f"{name}_{size}_bytes_bus_bytes_per_second", bus, "bytes/s")

    add(0, "ranks", float(ranks), None)
    for operation, factor in (("all_reduce", 2 * (ranks - 1) / ranks), ("broadcast", 1.0)):
        for size, usual in ((1 << 10, 1e8), (1 << 20, 4e11)):
            share = (rates or {}).get((operation, size), 1.0)
            add_point(operation, size, usual * share * store.chance.gauss(1, 0.005), factor)
    for first in range(ranks):
        for second in range(first + 1, ranks):
            share = 0.5 if slow_gpu in (first, second) else 1.0
            add_point(f"pair_{first}_{second}", 1 << 20, 2e11 * share, 1.0)
    for rank in range(ranks):
        rate = 2e11 * (0.5 if rank == slow_gpu else 1.0) * store.chance.gauss(1, 0.005)
        add(rank, f"pairs_{1 << 20}_bytes_bus_bytes_per_second", rate, "bytes/s")
    return ended


def add_days(store: SyntheticStore, node: Node, first: int, days: int, rate: float, version: str) -> None:
    """Add a run a day."""
    for day in range(first, first + days):
        store.run(
            f"{node.session_id}-{day}",
            node,
            start_seconds=day * DAY_SECONDS + node.session_id,
            throughput=rate * store.chance.gauss(1, 0.004),
            texts={"torch_version": version},
        )


def upgrade(store: SyntheticStore, node: Node, **session: object) -> Node:
    """Return the same node with another agent process, which found other facts."""
    store.rows["sessions"].append({**store.rows["sessions"][-1], "session_id": node.session_id + 1000, **session})
    device = {**store.rows["session_devices"][-1], "session_id": node.session_id + 1000}
    store.rows["session_devices"].append(device)
    return Node(session_id=node.session_id + 1000, node_id=node.node_id, gpus=node.gpus)


def add_history(store: SyntheticStore) -> None:
    """Add three nodes: `slowed` loses 6 % with a driver, `same` loses nothing, and `steady` keeps its driver."""
    for name, after in (("slowed", 0.94), ("same", 1.0)):
        node = store.node(name, "fleet", gpus=[GPU], driver_version="550", boot_id="a")
        add_days(store, node, 0, DAYS, 1000.0, "2.12")
        later = upgrade(store, node, driver_version="580", boot_id="b")
        add_days(store, later, DAYS, DAYS, 1000.0 * after, "2.12")
        at = {"session_id": later.session_id, "node_id": later.node_id, "time": EPOCH}
        store.rows["session_firmware"].append({**at, "name": "bios", "version": "2.1"})
    add_days(store, store.node("steady", "fleet", gpus=[GPU], driver_version="550"), 0, 9, 1000.0, "2.12")


def add_peers(store: SyntheticStore) -> None:
    """Add ten nodes with two runs each, one of them slow; one of another parameter; one that measures rates."""
    drivers = {number: {"driver_version": "550" if number % 2 else "580"} for number in range(10)}
    add_fleet(store, 10, rates={BAD: 0.9}, sessions=drivers)
    (lone,) = add_fleet(store, 1, parameters={"batch_size": 128}, repeats=1)
    ended = store.next_run(lone, throughput=None, workload="ceilings")
    for name, rate in (("gemm_bf16_flops_per_second", 7e14), ("gemm_bf16_4096_flops_per_second", 6e14)):
        store.rows["results"].append({**ended, "rank": 0, "name": name, "value": rate, "unit": "FLOP/s"})
    scatter(store)


def add_faulty_fleet(store: SyntheticStore) -> None:
    """Add a fleet with a fault of each kind."""
    drivers = {number: {"driver_version": "550" if number == OLD else "580"} for number in range(NODES)}
    fleet = add_fleet(store, NODES, rates={CAPPED: 0.8, SLOW: 0.55}, sessions=drivers)
    store.rows["session_devices"][CAPPED]["power_limit_watts"] = 200.0
    for number, node in enumerate(fleet):
        add_link(store, node, 0, 8 if number == NARROW else 16)
    for second, errors in ((10, 0), (12, 3)):
        node = fleet[FAULTY]
        turn = 2 * FAULTY * 17
        row = {**node.at(turn + second), "utilization_percent": 90.0, "ecc_errors_uncorrected": errors}
        store.gpu_sample(row, node.gpus[0])
    add_ranks(store, gpus=8, slow=SLOW_RANK)
    readings = {fleet[CAPPED].gpus[0]: {"power_watts": 400.0}, fleet[SLOW].gpus[0]: {"sm_clock_mhz": 960.0}}
    scatter(store, lambda row: row.update(readings.get(row["device_id"], {})))
