"""What others had of a run's GPU, how long it was held in vain, and what the node's processors drew."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from tests.integration.compare.synthetic import (
    EPOCH,
    MEASURE_SECONDS,
    RUN_SECONDS,
    SETUP_SECONDS,
    WARMUP_SECONDS,
    Node,
    SyntheticStore,
)

BEFORE_MEASURE = SETUP_SECONDS + WARMUP_SECONDS


def metrics(store: SyntheticStore) -> dict[str, float]:
    return {row["metric"]: row["value"] for row in store.ask("SELECT metric, value FROM metrics")}


@pytest.fixture
def node(any_store: SyntheticStore) -> Node:
    node = any_store.node("spruce", "laptop", gpus=["NVIDIA L4"])
    any_store.run("run-1", node, start_seconds=0)
    return node


def at(node: Node, second: float) -> dict[str, Any]:
    return {"session_id": node.session_id, "node_id": node.node_id, "time": EPOCH + timedelta(seconds=second)}


def see(store: SyntheticStore, node: Node, second: float, *holders: Mapping[str, Any], all_seen: bool = True) -> None:
    """Add one look at the processes on the node's GPU."""
    moment = {**at(node, second), "device_id": node.gpus[0]}
    store.rows["gpu_samples"].append({**moment, "process_count": len(holders) if all_seen else None})
    store.rows["gpu_process_samples"].extend({**moment, **holder} for holder in holders)


def holder(pid: int, run_id: str | None, memory: int | None, utilization: float | None) -> dict[str, Any]:
    return {"pid": pid, "run_id": run_id, "memory_used_bytes": memory, "utilization_percent": utilization}


OWN = holder(1, "run-1", 4_000_000_000, 50.0)


def test_what_others_held_is_added_up_at_each_look(any_store: SyntheticStore, node: Node) -> None:
    see(any_store, node, BEFORE_MEASURE + 1, OWN, holder(2, None, 1000, 20.0), holder(3, "another", 500, 10.0))
    see(any_store, node, BEFORE_MEASURE + 2, OWN, holder(4, None, 1200, 0.0))
    see(any_store, node, BEFORE_MEASURE + 3, OWN)
    any_store.write()
    figures = metrics(any_store)
    assert figures["gpu_other_processes"] == 2
    assert figures["gpu_other_memory_bytes"] == 1500
    assert figures["gpu_other_utilization_percent"] == pytest.approx(10.0)


def test_polls_without_utilisation_do_not_dilute_that_of_others(any_store: SyntheticStore, node: Node) -> None:
    for second in range(1, 6):
        see(any_store, node, BEFORE_MEASURE + second, holder(1, "run-1", 4_000_000_000, None))
    see(any_store, node, BEFORE_MEASURE + 6, OWN, holder(2, None, 1000, 40.0))
    see(any_store, node, BEFORE_MEASURE + 7, OWN)
    any_store.write()
    assert metrics(any_store)["gpu_other_utilization_percent"] == pytest.approx(20.0)


def test_a_gpu_of_ones_own_is_shared_by_nobody(any_store: SyntheticStore, node: Node) -> None:
    see(any_store, node, BEFORE_MEASURE + 1, OWN)
    see(any_store, node, BEFORE_MEASURE - 1, OWN, holder(2, None, 1000, 20.0))
    any_store.write()
    figures = metrics(any_store)
    names = ("gpu_other_processes", "gpu_other_memory_bytes", "gpu_other_utilization_percent")
    assert [figures[name] for name in names] == [0, 0, 0]


def test_without_a_view_of_all_processes_figures_of_others_are_absent(any_store: SyntheticStore, node: Node) -> None:
    see(any_store, node, BEFORE_MEASURE + 1, OWN, all_seen=False)
    any_store.write()
    assert not [name for name in metrics(any_store) if name.startswith("gpu_other")]


def test_a_missing_figure_of_one_other_process_is_missing_for_all(any_store: SyntheticStore, node: Node) -> None:
    see(any_store, node, BEFORE_MEASURE + 1, OWN, holder(2, None, None, 20.0), holder(3, None, 500, None))
    any_store.write()
    figures = metrics(any_store)
    assert figures["gpu_other_processes"] == 2
    assert "gpu_other_memory_bytes" not in figures
    assert "gpu_other_utilization_percent" not in figures


def test_a_gpu_is_held_from_the_runs_first_process_on_it_to_its_last(any_store: SyntheticStore, node: Node) -> None:
    # The GPU idles in the 2 s of setup; the run holds it from the second one on.
    for second in range(1, RUN_SECONDS):
        see(any_store, node, second, OWN)
    any_store.write()
    figures = metrics(any_store)
    idle_ticks, held_ticks = 2 * (SETUP_SECONDS - 1), 2 * (RUN_SECONDS - 2) + 1
    assert figures["gpu_held_idle_percent"] == pytest.approx(100 * idle_ticks / held_ticks)
    assert figures["gpu_idle_percent"] == 0


def draw(store: SyntheticStore, node: Node, watts: float, *seconds: float) -> None:
    store.rows["host_samples"].extend({**at(node, second), "cpu_power_watts": watts} for second in seconds)


def test_energy_is_what_processors_drew_in_the_measured_phase(any_store: SyntheticStore, node: Node) -> None:
    draw(any_store, node, 1000.0, *range(BEFORE_MEASURE + 1))
    draw(any_store, node, 200.0, *range(BEFORE_MEASURE + 1, RUN_SECONDS))
    any_store.write()
    assert metrics(any_store)["cpu_energy_joules"] == pytest.approx(200.0 * MEASURE_SECONDS)


def test_a_sample_across_the_end_of_the_window_counts_by_its_part(any_store: SyntheticStore, node: Node) -> None:
    draw(any_store, node, 100.0, *(second + 0.5 for second in range(RUN_SECONDS)))
    any_store.write()
    assert metrics(any_store)["cpu_energy_joules"] == pytest.approx(100.0 * MEASURE_SECONDS)


def test_with_a_hole_in_the_readings_there_is_no_energy(any_store: SyntheticStore, node: Node) -> None:
    draw(any_store, node, 200.0, *(second for second in range(RUN_SECONDS) if not 5 < second < 12))
    any_store.write()
    assert "cpu_energy_joules" not in metrics(any_store)


def test_energy_is_of_all_nodes_or_of_none(any_store: SyntheticStore, node: Node) -> None:
    other = any_store.node("fir", "laptop")
    any_store.rows["run_devices"].append({**at(other, 1), "run_id": "run-1", "rank": 1})
    draw(any_store, node, 200.0, *range(RUN_SECONDS))
    any_store.write()
    assert "cpu_energy_joules" not in metrics(any_store)


def test_two_agents_on_a_node_do_not_double_its_energy(any_store: SyntheticStore, node: Node) -> None:
    draw(any_store, node, 200.0, *range(RUN_SECONDS))
    another = Node(session_id=999, node_id=node.node_id, gpus=())
    draw(any_store, another, 200.0, *(second + 0.25 for second in range(RUN_SECONDS)))
    any_store.write()
    assert metrics(any_store)["cpu_energy_joules"] == pytest.approx(200.0 * MEASURE_SECONDS)
