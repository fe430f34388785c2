"""What GPUs and processors of a run drew, and what others had of its GPU, on both kinds of store."""

import math
import statistics
from collections.abc import Callable, Mapping
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from gpuagent.sources.nvml import NvmlEnergy, NvmlGpu
from gpuagent.sources.source import SourceContext
from gpuagent_collector.metrics.summarize import summarize_runs
from tests.integration.compare.synthetic import (
    BEFORE_MEASURE,
    COMPUTED_AT,
    EPOCH,
    MEASURE_SECONDS,
    RUN_SECONDS,
    SETUP_SECONDS,
    Node,
    SyntheticStore,
)
from tests.support.nvml_replay import NvmlRecording
from tests.support.trees import instant

pytestmark = pytest.mark.slow

# Of the measured phase, after the begin of the run.
END_SECONDS = BEFORE_MEASURE + MEASURE_SECONDS

POLLED_JOULES = 150 * MEASURE_SECONDS

# Watts at each moment, in seconds after the begin of the run.
Power = Callable[[float], float]


def rising(second: float) -> float:
    return 100 + 10 * second


def add_run(store: SyntheticStore, *, gpus: int = 1, polled: bool = True) -> Node:
    """Add a run; without polled power on request."""
    node = store.only_run(gpus)
    if not polled:
        del store.rows["gpu_samples"]
    return node


def read_power(store: SyntheticStore, node: Node, power: Power, every_seconds: float) -> None:
    """Add what the driver kept of a GPU's power, from before the run until after it."""
    for tick in range(-2, round(RUN_SECONDS / every_seconds) + 3):
        second = tick * every_seconds
        store.rows["power_samples"].append({**node.at(second, gpu=0), "power_watts": power(second)})


def read_counter(store: SyntheticStore, node: Node, joules: Power, every_seconds: float) -> None:
    """Add readings of a GPU's energy counter."""
    for tick in range(-2, round(RUN_SECONDS / every_seconds) + 3):
        second = tick * every_seconds
        store.rows["gpu_samples"].append({**node.at(second, gpu=0), "energy_joules": 5000 + joules(second)})


def metric(store: SyntheticStore, name: str = "gpu_energy_joules") -> float | None:
    """Write what was added, and return a figure of the run."""
    return store.figures().get(name)


def energies(store: SyntheticStore) -> Mapping[str | None, tuple[Any, str]]:
    """Write what was added, and return joules and method of each phase of the only GPU."""
    rows = store.ask("SELECT phase, energy_joules, method FROM energy WHERE step IS NULL")
    return {row["phase"]: (row["energy_joules"], row["method"]) for row in rows}


def test_polled_power_is_integrated_and_added_up_over_gpus(store: SyntheticStore) -> None:
    add_run(store, gpus=2)
    assert metric(store) == pytest.approx(2 * POLLED_JOULES)


def test_the_drivers_own_readings_are_preferred_and_cut_at_the_ends_of_the_phase(store: SyntheticStore) -> None:
    node = add_run(store)
    # The readings lie across both of the phase's ends.
    for second in range(RUN_SECONDS + 2):
        store.rows["power_samples"].append({**node.at(second - 0.5, gpu=0), "power_watts": rising(second - 0.5)})
    mean_watts = rising((BEFORE_MEASURE + END_SECONDS) / 2)
    assert energies(store)["measure"] == (pytest.approx(mean_watts * MEASURE_SECONDS), "power_samples")


def test_a_sine_that_the_driver_saw_every_20_ms_has_the_energy_of_its_mean(store: SyntheticStore) -> None:
    node = add_run(store)
    read_power(store, node, lambda second: 300 + 100 * math.sin(2 * math.pi * second), every_seconds=0.02)
    assert metric(store) == pytest.approx(300 * MEASURE_SECONDS, rel=1e-4)


def test_polled_power_replaces_missing_readings_of_the_driver(store: SyntheticStore) -> None:
    node = add_run(store)
    read_power(store, node, lambda _: 400.0, every_seconds=0.02)
    hole = [EPOCH + timedelta(seconds=BEFORE_MEASURE + second) for second in (1, 8)]
    readings = store.rows["power_samples"]
    readings[:] = [row for row in readings if not hole[0] <= row["time"] <= hole[1]]
    for row in store.rows["gpu_samples"]:
        row["power_kind"] = "instant"
    assert energies(store)["measure"] == (pytest.approx(POLLED_JOULES), "power_instant")


def test_without_power_there_is_no_energy(store: SyntheticStore) -> None:
    add_run(store, polled=False)
    assert energies(store) == {}


def test_where_one_of_the_runs_gpus_has_no_energy_the_run_has_none(store: SyntheticStore) -> None:
    node = add_run(store, gpus=2, polled=False)
    read_power(store, node, rising, every_seconds=0.5)
    assert metric(store) is None
    assert len(energies(store)) > 1


def test_the_energy_of_a_gpu_that_two_agents_read_is_counted_once(store: SyntheticStore) -> None:
    node = add_run(store)
    read_power(store, node, rising, every_seconds=0.1)
    other = store.beside(node)
    store.rows["power_samples"] += [{**row, "session_id": other.session_id} for row in store.rows["power_samples"]]
    assert metric(store) == pytest.approx(rising((BEFORE_MEASURE + END_SECONDS) / 2) * MEASURE_SECONDS)


def test_phases_add_up_to_the_whole_run(any_store: SyntheticStore) -> None:
    node = add_run(any_store)
    read_power(any_store, node, rising, every_seconds=0.02)
    found = energies(any_store)
    joules = {phase: joules for phase, (joules, _) in found.items()}
    assert joules.pop(None) == pytest.approx(rising(RUN_SECONDS / 2) * RUN_SECONDS)
    assert joules["setup"] == pytest.approx(rising(SETUP_SECONDS / 2) * SETUP_SECONDS)
    assert set(joules) == {"setup", "warmup", "measure", "teardown"}
    assert sum(joules.values()) == pytest.approx(rising(RUN_SECONDS / 2) * RUN_SECONDS)
    assert metric(any_store, "gpu_energy_run_joules") == pytest.approx(rising(RUN_SECONDS / 2) * RUN_SECONDS)


def test_a_phase_of_fewer_than_ten_readings_has_no_energy(store: SyntheticStore) -> None:
    node = add_run(store, polled=False)
    read_power(store, node, rising, every_seconds=0.19)
    assert set(energies(store)) == {None, "setup", "measure"}


def test_what_a_rank_does_again_after_a_restart_is_part_of_the_measured_phase(store: SyntheticStore) -> None:
    node = add_run(store)
    read_power(store, node, rising, every_seconds=0.02)
    for second, phase in ((6, "setup"), (8, "measure")):
        again = {"run_id": "run-1", "rank": 0, "event": "phase", "name": phase}
        store.rows["run_events"].append({**node.at(second), **again})
    found = energies(store)
    assert found["setup"][0] == pytest.approx(rising(SETUP_SECONDS / 2) * SETUP_SECONDS)
    assert found["measure"][0] == pytest.approx(rising((BEFORE_MEASURE + END_SECONDS) / 2) * MEASURE_SECONDS)


def test_a_run_without_phases_has_the_energy_of_the_whole_run_and_none_of_an_item(store: SyntheticStore) -> None:
    read_power(store, store.only_run(1, phases=False), lambda _: 200.0, every_seconds=0.1)
    assert metric(store) == pytest.approx(200 * RUN_SECONDS)
    assert metric(store, "gpu_energy_per_item_joules") is None


def test_the_counter_replaces_missing_power_and_is_interpolated(store: SyntheticStore) -> None:
    node = add_run(store, polled=False)
    # Not read at an end of the phase: 11 times from 2.2 s to 15.4 s.
    read_counter(store, node, lambda second: 250 * second, every_seconds=1.1)
    assert energies(store) == {
        None: (pytest.approx(250 * RUN_SECONDS), "counter"),
        "measure": (pytest.approx(250 * MEASURE_SECONDS), "counter"),
    }


def test_counter_and_power_agree_on_the_same_load(store: SyntheticStore) -> None:
    node = add_run(store, polled=False)
    read_counter(store, node, lambda second: 300 * second - 80 * math.cos(second), every_seconds=1.0)
    counted, method = energies(store)["measure"]
    assert method == "counter"
    read_power(store, node, lambda second: 300 + 80 * math.sin(second), every_seconds=0.02)
    store.write(summarize=False)
    summarize_runs(store.connection, ["run-1"], COMPUTED_AT + timedelta(seconds=1))
    integrated, method = energies(store)["measure"]
    assert method == "power_samples"
    assert counted == pytest.approx(integrated, rel=0.01)


def test_a_counter_that_restarted_in_the_phase_gives_no_energy(store: SyntheticStore) -> None:
    node = add_run(store, polled=False)
    read_counter(store, node, lambda second: 250 * second - (4000 if second > 8 else 0), every_seconds=1.0)
    assert energies(store) == {}


def test_an_item_has_its_share_of_the_measured_phase(store: SyntheticStore) -> None:
    node = add_run(store)
    read_power(store, node, lambda _: 320.0, every_seconds=0.1)
    items = sum(row["items"] for row in store.rows["steps"])
    assert metric(store, "gpu_energy_per_item_joules") == pytest.approx(320 * MEASURE_SECONDS / items)


def test_a_printed_line_of_many_steps_has_the_items_of_all_of_them(store: SyntheticStore) -> None:
    node = add_run(store)
    read_power(store, node, lambda _: 320.0, every_seconds=0.1)
    rows = store.rows["steps"]
    store.report(node.at(END_SECONDS) | {"run_id": "run-1"}, {"steps": 50.0 * len(rows)}, phase="measure")
    items = 50 * sum(row["items"] for row in rows)
    assert metric(store, "gpu_energy_per_item_joules") == pytest.approx(320 * MEASURE_SECONDS / items)


def test_steps_of_ten_readings_have_an_energy_and_shorter_ones_have_none(store: SyntheticStore) -> None:
    node = add_run(store)
    read_power(store, node, rising, every_seconds=0.02)
    for row in store.rows["steps"]:
        row["wall_seconds"] = 0.2
    steps = sorted(row["time"] for row in store.rows["steps"])
    joules = [0.2 * rising((time - EPOCH).total_seconds() - 0.1) for time in steps]
    assert metric(store, "gpu_energy_per_step_joules") == pytest.approx((joules[4] + joules[5]) / 2)
    stored = store.ask("SELECT step, energy_joules, seconds FROM energy WHERE step IS NOT NULL ORDER BY step")
    assert [row["energy_joules"] for row in stored] == pytest.approx(joules)
    store.connection.execute("UPDATE steps SET wall_seconds = 0.18")
    summarize_runs(store.connection, ["run-1"], COMPUTED_AT + timedelta(seconds=1))
    assert store.ask("SELECT step FROM energy WHERE step IS NOT NULL") == []
    assert metric(store, "gpu_energy_per_step_joules") is None


def test_a_step_is_as_long_as_its_gpu_took_not_as_its_host(store: SyntheticStore) -> None:
    node = add_run(store)
    read_power(store, node, lambda _: 300.0, every_seconds=0.02)
    for row in store.rows["steps"]:
        row |= {"wall_seconds": 0.01, "gpu_seconds": 0.9}
    assert metric(store, "gpu_energy_per_step_joules") == pytest.approx(270)


# How often an H200 renews its counter: while idle at 78 W, each reading is 7.79 J above the last, or twice that.
COUNTER_SECONDS = 0.1


def recorded(name: str) -> list[tuple[float, float, float]]:
    """Return second, watts and joules of each reading of a recorded GPU, timed by the steps of its counter."""
    recording = NvmlRecording.load(name)
    context = SourceContext(open_nvml=recording.open)
    power, counter = NvmlGpu(context), NvmlEnergy(context)
    readings = [call for call in recording.outcomes if "TotalEnergy" in call]
    found: list[tuple[float, float, float]] = []
    for _ in recording.outcomes[readings[0]]:
        (polled,), (counted,) = power.read(instant(0)), counter.read(instant(0))
        found.append((0, float(polled.values["power_watts"] or 0), float(counted.values["energy_joules"] or 0)))
    usual = statistics.median(after[2] - before[2] for before, after in pairwise(found))
    return [(COUNTER_SECONDS * round((joules - found[0][2]) / usual), watts, joules) for _, watts, joules in found]


@pytest.mark.parametrize("name", ["h200_idle_energy", "h200_busy_energy"])
def test_polled_power_and_counter_of_a_recorded_h200_agree(store: SyntheticStore, name: str) -> None:
    readings = recorded(name)
    node = add_run(store, polled=False)
    for second, watts, joules in readings:
        values = {"power_watts": watts, "power_kind": "instant", "energy_joules": joules}
        store.rows["gpu_samples"].append({**node.at(BEFORE_MEASURE + second, gpu=0), **values})
    for row in store.rows["run_events"]:
        row["time"] = min(row["time"], EPOCH + timedelta(seconds=BEFORE_MEASURE + readings[-1][0]))
    integrated = energies(store)["measure"]
    store.connection.execute("UPDATE gpu_samples SET power_watts = NULL")
    summarize_runs(store.connection, ["run-1"], COMPUTED_AT + timedelta(seconds=1))
    counted = energies(store)["measure"]
    assert (integrated[1], counted[1]) == ("power_instant", "counter")
    assert integrated[0] == pytest.approx(counted[0], rel=0.02)


@pytest.fixture
def node(store: SyntheticStore) -> Node:
    return store.only_run(1)


def see(store: SyntheticStore, node: Node, second: float, *holders: Mapping[str, Any], all_seen: bool = True) -> None:
    """Add one look at the processes on the node's GPU."""
    moment = node.at(second, gpu=0)
    store.rows["gpu_samples"].append({**moment, "process_count": len(holders) if all_seen else None})
    store.rows["gpu_process_samples"].extend({**moment, **holder} for holder in holders)


def holder(pid: int, run_id: str | None, memory: int | None, utilization: float | None) -> dict[str, Any]:
    return {"pid": pid, "run_id": run_id, "memory_used_bytes": memory, "utilization_percent": utilization}


OWN = holder(1, "run-1", 4_000_000_000, 50.0)


def test_what_others_held_is_added_up_at_each_look(store: SyntheticStore, node: Node) -> None:
    see(store, node, BEFORE_MEASURE + 1, OWN)
    see(store, node, BEFORE_MEASURE + 2, OWN, holder(2, None, 1000, 20.0), holder(3, "another", 500, 10.0))
    see(store, node, BEFORE_MEASURE + 3, OWN, holder(4, None, 1200, 0.0))
    see(store, node, BEFORE_MEASURE + 4, OWN)
    figures = store.figures()
    assert figures["gpu_other_processes"] == 2
    assert figures["gpu_other_memory_bytes"] == 1500
    assert figures["gpu_other_utilization_percent"] == pytest.approx(10.0)


def test_a_process_of_the_pod_that_measures_itself_is_no_neighbour(store: SyntheticStore, node: Node) -> None:
    store.rows["sessions"][0]["labels"] = '{"pod_uid": "ours"}'
    in_pods = [{**holder(8, None, 4_000_000_000, 50.0), "pod_uid": pod_uid} for pod_uid in ("ours", "theirs")]
    see(store, node, BEFORE_MEASURE + 1, *in_pods)
    assert store.figures()["gpu_other_processes"] == 1


def test_another_agent_of_the_node_does_not_make_the_run_its_own_neighbour(store: SyntheticStore, node: Node) -> None:
    see(store, node, BEFORE_MEASURE + 1, OWN)
    see(store, node, BEFORE_MEASURE + 1.5, {**OWN, "run_id": None}, holder(2, None, 1000, 20.0))
    assert store.figures()["gpu_other_processes"] == 1


def test_polls_without_utilisation_do_not_dilute_that_of_others(store: SyntheticStore, node: Node) -> None:
    see(store, node, BEFORE_MEASURE + 0.5, OWN)
    for second in range(1, 6):
        see(store, node, BEFORE_MEASURE + second, holder(1, "run-1", 4_000_000_000, None))
    see(store, node, BEFORE_MEASURE + 6, OWN, holder(2, None, 1000, 40.0))
    see(store, node, BEFORE_MEASURE + 7, OWN)
    assert store.figures()["gpu_other_utilization_percent"] == pytest.approx(20.0)


def test_the_first_report_is_of_time_before_the_measured_phase(store: SyntheticStore, node: Node) -> None:
    see(store, node, BEFORE_MEASURE + 1, OWN, holder(2, None, 1000, 80.0))
    figures = store.figures()
    assert (figures["gpu_other_processes"], figures.get("gpu_other_utilization_percent")) == (1, None)


def test_a_gpu_of_ones_own_is_shared_by_nobody(store: SyntheticStore, node: Node) -> None:
    see(store, node, BEFORE_MEASURE + 1, OWN)
    see(store, node, BEFORE_MEASURE + 2, OWN)
    see(store, node, BEFORE_MEASURE - 1, OWN, holder(2, None, 1000, 20.0))
    figures = store.figures()
    names = ("gpu_other_processes", "gpu_other_memory_bytes", "gpu_other_utilization_percent")
    assert [figures[name] for name in names] == [0, 0, 0]


def test_without_a_view_of_all_processes_figures_of_others_are_absent(store: SyntheticStore, node: Node) -> None:
    see(store, node, BEFORE_MEASURE + 1, OWN, all_seen=False)
    assert not [name for name in store.figures() if name.startswith("gpu_other")]


def test_a_missing_figure_of_one_other_process_is_missing_for_all(store: SyntheticStore, node: Node) -> None:
    see(store, node, BEFORE_MEASURE + 1, OWN, holder(2, None, None, 20.0), holder(3, None, 500, None))
    figures = store.figures()
    assert figures["gpu_other_processes"] == 2
    assert "gpu_other_memory_bytes" not in figures
    assert "gpu_other_utilization_percent" not in figures


def energy_shares(store: SyntheticStore) -> list[float | None]:
    """Return the run's own share of its GPUs' energy: at least, estimated, at most."""
    figures = store.figures()
    return [figures.get(f"gpu_energy_{name}_joules") for name in ("share_least", "share", "share_most")]


def look_each_second(store: SyntheticStore, node: Node, own: float | None, other: float | None) -> None:
    for second in range(MEASURE_SECONDS + 1):
        beside = [holder(2, None, 1000, other)] if other is None or other > 0 else []
        see(store, node, BEFORE_MEASURE + second, holder(1, "run-1", 4_000_000_000, own), *beside)


# Polled at 150 W all the time, of at most 300: what else is known of the idle GPU is this.
IDLE_WATTS = 50.0


@pytest.fixture
def with_idle(store: SyntheticStore, node: Node) -> Node:
    store.rows["gpu_samples"][0]["power_watts"] = IDLE_WATTS
    return node


def test_a_run_has_the_part_of_a_shared_gpus_energy_in_which_its_processes_were_busy(
    store: SyntheticStore, with_idle: Node
) -> None:
    look_each_second(store, with_idle, 60.0, 20.0)
    least, share, most = energy_shares(store)
    # In a fifth of the time another process drew at most the whole 300 W; without work the GPU draws 50 W.
    assert least == pytest.approx((150 - IDLE_WATTS - 0.2 * 250) * MEASURE_SECONDS)
    assert share == pytest.approx(0.75 * POLLED_JOULES)
    assert most == pytest.approx(POLLED_JOULES)


def test_two_agents_of_a_node_see_the_same_share(store: SyntheticStore, with_idle: Node) -> None:
    beside = store.beside(with_idle)
    look_each_second(store, with_idle, 60.0, 20.0)
    for second in range(MEASURE_SECONDS):
        # It does not know the run.
        see(store, beside, BEFORE_MEASURE + second + 0.5, holder(1, None, 1000, 60.0), holder(2, None, 1000, 20.0))
    least, share, most = energy_shares(store)
    assert least == pytest.approx((150 - IDLE_WATTS - 0.2 * 250) * MEASURE_SECONDS)
    assert share == pytest.approx(0.75 * POLLED_JOULES)
    assert most == pytest.approx(POLLED_JOULES)


def test_without_a_measured_phase_the_share_is_of_the_whole_run(store: SyntheticStore) -> None:
    node = store.only_run(1, phases=False)
    store.rows["gpu_samples"][0]["power_watts"] = IDLE_WATTS
    for second in range(RUN_SECONDS + 1):
        see(store, node, second, holder(1, "run-1", 1000, 60.0), holder(2, None, 1000, 20.0))
    store.gpu_sample(node.at(RUN_SECONDS), node.gpus[0])
    figures = store.figures()
    assert figures["gpu_energy_share_joules"] == pytest.approx(0.75 * figures["gpu_energy_run_joules"])
    assert figures["gpu_energy_share_least_joules"] < figures["gpu_energy_share_joules"]


def test_the_shares_of_a_run_on_two_nodes_add_up(store: SyntheticStore) -> None:
    here, there = (store.node(name, "laptop", gpus=["NVIDIA L4"]) for name in ("spruce", "elm"))
    for rank, node in enumerate((here, there)):
        store.run("run-1", node, start_seconds=0, nodes=2, rank=rank)
    store.rows["gpu_samples"][0]["power_watts"] = IDLE_WATTS
    look_each_second(store, here, 60.0, 20.0)
    look_each_second(store, there, 60.0, 0)
    least, share, most = energy_shares(store)
    # Nobody else is on the GPU there.
    assert least == pytest.approx((150 - IDLE_WATTS - 0.2 * 250) * MEASURE_SECONDS + POLLED_JOULES)
    assert share == pytest.approx(1.75 * POLLED_JOULES)
    assert most == pytest.approx(2 * POLLED_JOULES)


def test_a_report_just_before_the_measured_phase_counts_from_its_begin(store: SyntheticStore, with_idle: Node) -> None:
    for second in (-2, 3, 8, 12):
        see(store, with_idle, BEFORE_MEASURE + second, OWN, holder(2, None, 1000, 50.0))
    _, share, most = energy_shares(store)
    assert share == pytest.approx(POLLED_JOULES / 2)
    assert most == pytest.approx(POLLED_JOULES)


def test_what_others_must_have_drawn_is_not_the_runs(store: SyntheticStore, with_idle: Node) -> None:
    look_each_second(store, with_idle, 10.0, 90.0)
    least, share, most = energy_shares(store)
    assert least == 0
    assert share == pytest.approx(0.1 * POLLED_JOULES)
    assert most == pytest.approx((IDLE_WATTS + 0.1 * 250) * MEASURE_SECONDS)


def test_without_use_by_process_a_shared_gpus_energy_has_bounds_alone(store: SyntheticStore, with_idle: Node) -> None:
    look_each_second(store, with_idle, 60.0, None)
    assert energy_shares(store) == [0, None, pytest.approx(POLLED_JOULES)]


def test_the_energy_of_a_gpu_of_ones_own_has_no_shares(store: SyntheticStore, with_idle: Node) -> None:
    look_each_second(store, with_idle, 60.0, 0)
    assert energy_shares(store) == [None, None, None]


def test_time_alone_on_the_gpu_is_the_runs_whole(store: SyntheticStore, with_idle: Node) -> None:
    look_each_second(store, with_idle, 60.0, 0)
    see(store, with_idle, BEFORE_MEASURE + 6.5, OWN, holder(2, None, 1000, 50.0))
    least, share, most = energy_shares(store)
    # The other's second has two parts: its own look, and that of the second in which it left.
    assert least is not None
    assert share is not None
    assert POLLED_JOULES * 11 / 12 <= least < share < POLLED_JOULES == pytest.approx(most)


def test_who_left_before_the_measured_phase_has_no_part_of_its_energy(store: SyntheticStore, with_idle: Node) -> None:
    see(store, with_idle, BEFORE_MEASURE - 2, OWN, holder(2, None, 1000, 50.0))
    look_each_second(store, with_idle, 60.0, 0)
    assert energy_shares(store) == [None, None, None]


def test_who_comes_and_goes_between_two_reports_may_have_had_the_rest_of_the_time(
    store: SyntheticStore, with_idle: Node
) -> None:
    busy = holder(1, "run-1", 4_000_000_000, 80.0)
    for second in (0, 5, 10, 12):
        see(store, with_idle, BEFORE_MEASURE + second, busy)
    see(store, with_idle, BEFORE_MEASURE + 7, {**busy, "utilization_percent": None}, holder(2, None, 1000, None))
    least, share, most = energy_shares(store)
    # In a fifth of these 5 s it drew at most the whole 300 W; without work the GPU draws 50 W.
    assert least == pytest.approx(POLLED_JOULES - 5 * (150 - (150 - IDLE_WATTS - 0.2 * 250)))
    assert share == most == pytest.approx(POLLED_JOULES)


def test_a_gpu_is_held_from_the_runs_first_process_on_it_to_its_last(store: SyntheticStore, node: Node) -> None:
    # The GPU idles in the 2 s of setup; the run holds it from the second one on.
    for second in range(1, RUN_SECONDS):
        see(store, node, second, OWN)
    figures = store.figures()
    idle_ticks, held_ticks = 2 * (SETUP_SECONDS - 1), 2 * (RUN_SECONDS - 2) + 1
    assert figures["gpu_held_idle_percent"] == pytest.approx(100 * idle_ticks / held_ticks)
    assert figures["gpu_idle_percent"] == 0


def draw(store: SyntheticStore, node: Node, watts: float, *seconds: float) -> None:
    store.rows["host_samples"].extend({**node.at(second), "cpu_power_watts": watts} for second in seconds)


def test_energy_is_what_processors_drew_in_the_measured_phase(store: SyntheticStore, node: Node) -> None:
    draw(store, node, 1000.0, *range(BEFORE_MEASURE + 1))
    draw(store, node, 200.0, *range(BEFORE_MEASURE + 1, RUN_SECONDS))
    # Another agent on the node does not double its energy.
    another = Node(session_id=999, node_id=node.node_id, gpus=())
    draw(store, another, 200.0, *(second + 0.25 for second in range(BEFORE_MEASURE + 1, RUN_SECONDS)))
    assert store.figures()["cpu_energy_joules"] == pytest.approx(200.0 * MEASURE_SECONDS)


def test_a_sample_across_the_end_of_the_window_counts_by_its_part(store: SyntheticStore, node: Node) -> None:
    draw(store, node, 100.0, *(second + 0.5 for second in range(RUN_SECONDS)))
    assert store.figures()["cpu_energy_joules"] == pytest.approx(100.0 * MEASURE_SECONDS)


def test_with_a_hole_in_the_readings_there_is_no_energy(store: SyntheticStore, node: Node) -> None:
    draw(store, node, 200.0, *(second for second in range(RUN_SECONDS) if not 5 < second < 12))
    assert "cpu_energy_joules" not in store.figures()


def test_energy_is_of_all_nodes_or_of_none(store: SyntheticStore, node: Node) -> None:
    other = store.node("fir", "laptop")
    store.rows["run_devices"].append({**other.at(1), "run_id": "run-1", "rank": 1})
    draw(store, node, 200.0, *range(RUN_SECONDS))
    assert "cpu_energy_joules" not in store.figures()
