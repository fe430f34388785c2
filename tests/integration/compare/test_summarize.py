"""Run summaries, on a DuckDB file and on a DuckLake."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from gpuagent_collector.metrics import METRICS
from gpuagent_collector.metrics.metric_sources import SOURCES
from gpuagent_collector.metrics.summarize import summarize_runs
from tests.integration.compare.ranked import add_ranked
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

pytestmark = pytest.mark.slow


def test_a_run_gets_every_figure_that_its_rows_can_give_and_a_later_summary_replaces_them(
    any_store: SyntheticStore,
) -> None:
    any_store.only_run(1, throughput=640.0, cpu_percent=50.0)
    figures = any_store.figures()
    expected = {
        "throughput": 640.0,
        "step_seconds": pytest.approx(0.1),
        "run_seconds": RUN_SECONDS,
        "measure_seconds": MEASURE_SECONDS,
        "time_to_first_step_seconds": BEFORE_MEASURE + 1,
        "cpu_percent": pytest.approx(50, abs=2),
        "cpu_used_cores": pytest.approx(4, abs=0.2),
        "process_anonymous_peak_bytes": 600_000_000,
        "gpu_memory_used_bytes": 4_000_000_000,
        "gpu_memory_used_percent": pytest.approx(100 * 4 / 24),
        "gpu_utilization_percent": pytest.approx(80, abs=2),
        "gpu_idle_percent": 0,
        "parameters": 1_199_882,
        "gpu_memory_allocated_bytes": 3_000_000_000,
        "accuracy": pytest.approx(98.5, abs=0.3),
    }
    assert {name: figures[name] for name in expected} == expected
    summarize_runs(any_store.connection, ["run-1"], COMPUTED_AT + timedelta(seconds=1))
    assert any_store.figures() == figures
    assert any_store.ask("SELECT count(*) - count(DISTINCT metric) AS twice FROM metrics") == [{"twice": 0}]


def test_a_run_lasts_from_the_begin_of_its_program_which_may_be_known_later_than_its_launch(
    any_store: SyntheticStore,
) -> None:
    node = any_store.only_run(throughput=None, phases=False)
    begun = {**node.at(4), "run_id": "run-1", "status": "running"}
    any_store.rows["run_states"].append(begun)
    assert any_store.figures()["run_seconds"] == RUN_SECONDS - 4


def test_a_run_whose_clock_was_set_back_has_no_duration(store: SyntheticStore) -> None:
    node = store.only_run()
    (running,) = (row for row in store.rows["run_states"] if row["status"] == "running")
    running |= node.at(RUN_SECONDS + 1)
    assert not {"run_seconds", "first_report_seconds", "time_to_first_step_seconds"} & store.figures().keys()


def test_figures_that_nothing_was_read_for_are_absent(store: SyntheticStore) -> None:
    store.only_run(throughput=None)
    figures = store.figures()
    assert not {"throughput", "accuracy", "step_seconds", "process_pss_peak_bytes"} & set(figures)
    assert not [name for name in figures if name.startswith(("gpu_", "sm_", "dram_", "tensor_"))]


def test_samples_of_idle_neighbours_and_of_other_times_do_not_count(store: SyntheticStore) -> None:
    node = store.only_run(2)
    store.rows["run_devices"].pop()
    for second in range(-60, 60):
        store.gpu_sample(node.at(second), node.gpus[1], utilization_percent=0.0, power_watts=5.0)
        if not BEFORE_MEASURE <= second <= BEFORE_MEASURE + MEASURE_SECONDS:
            store.gpu_sample(node.at(second), node.gpus[0], utilization_percent=0.0, power_watts=5.0)
    figures = store.figures()
    assert figures["gpu_power_watts"] == 150.0
    assert figures["gpu_idle_percent"] == 0


def test_a_throughput_without_a_phase_counts_unless_one_of_the_measured_phase_exists(store: SyntheticStore) -> None:
    node = store.node("spruce", "laptop", gpus=["NVIDIA L4"])
    reported: dict[str, dict[str | None, float]] = {
        "without": {None: 50.0},
        "before": {"measure": 40.0, None: 60.0},
        "after": {None: 60.0, "measure": 40.0},
        "warming up": {"warmup": 60.0},
    }
    for turn, (run_id, results) in enumerate(reported.items()):
        store.run(run_id, node, start_seconds=100 * turn, throughput=None)
        for number, (phase, value) in enumerate(results.items()):
            at = {**node.at(100 * turn + BEFORE_MEASURE + number), "run_id": run_id}
            store.report(at, {"throughput": value}, phase=phase)
    assert figures_of_runs(store, "throughput") == {"without": 50.0, "before": 40.0, "after": 40.0}


def test_a_throughput_has_the_unit_that_its_run_reported(any_store: SyntheticStore) -> None:
    node = any_store.node("spruce", "laptop")
    for turn, unit in enumerate(("items/s", "steps/s")):
        any_store.run(unit, node, start_seconds=100 * turn)
    any_store.rows["results"] = [
        {**row, "unit": row["run_id"]} if row["name"] == "throughput" else row for row in any_store.rows["results"]
    ]
    rows = any_store.ask("SELECT DISTINCT run_id, unit FROM metrics WHERE unit LIKE '%/s' ORDER BY ALL")
    assert rows == [{"run_id": unit, "unit": unit} for unit in ("items/s", "steps/s")]
    assert any_store.ask("SELECT DISTINCT unit FROM metrics WHERE metric = 'run_seconds'") == [{"unit": "seconds"}]


def figures_of_runs(store: SyntheticStore, metric: str) -> dict[str, float]:
    """Write what was added, and return a figure of each run that has it."""
    rows = store.ask("SELECT run_id, value FROM metrics WHERE metric = ?", [metric])
    return {row["run_id"]: row["value"] for row in rows}


def test_a_run_without_phases_counts_from_start_to_end_and_has_no_measured_time(store: SyntheticStore) -> None:
    store.only_run(phases=False, cpu_percent=100.0)
    figures = store.figures()
    assert "measure_seconds" not in figures
    idle_share = SETUP_SECONDS / RUN_SECONDS
    assert figures["cpu_percent"] == pytest.approx(100 - 90 * idle_share, abs=1)


def test_throughput_is_the_sum_over_ranks_and_gpu_figures_are_means_over_the_runs_gpus(
    store: SyntheticStore,
) -> None:
    node = store.only_run(2, throughput=100.0)
    second_rank = {"run_id": "run-1", "rank": 1, "name": "throughput", "value": 90.0, "phase": "measure"}
    store.rows["results"].append({**node.at(RUN_SECONDS), **second_rank})
    at = node.at(BEFORE_MEASURE)
    store.gpu_sample(at, node.gpus[1], utilization_percent=0.0, memory_used_bytes=9_000_000_000)
    figures = store.figures()
    assert figures["throughput"] == 190.0
    assert figures["gpu_memory_used_bytes"] == 9_000_000_000
    assert 0 < figures["gpu_idle_percent"] < 5


def phases(store: SyntheticStore, node: Node, rank: int, *seconds_and_names: tuple[float, str]) -> None:
    for second, name in seconds_and_names:
        event = {"run_id": "run-1", "rank": rank, "event": "phase", "name": name}
        store.rows["run_events"].append({**node.at(second), **event})


def test_the_measured_time_of_a_run_whose_ranks_were_restarted_spans_all_of_their_measure_phases(
    store: SyntheticStore,
) -> None:
    node = store.only_run(phases=False)
    restarted = ((6, "prepare"), (7, "setup"), (8, "measure"), (12, "teardown"), (13, "end"))
    phases(store, node, 0, (1, "setup"), (2, "warmup"), (3, "measure"), *restarted)
    # Killed in its first measure phase, and not started again.
    phases(store, node, 1, (1, "setup"), (2, "warmup"), (4, "measure"))
    assert store.figures()["measure_seconds"] == 12 - 3


@pytest.mark.parametrize("restart", [(), ((4, "prepare"), (5, "setup"), (6, "measure"))], ids=["once", "restarted"])
def test_a_measure_phase_that_nobody_ended_lasts_as_long_as_the_run(
    store: SyntheticStore, restart: tuple[tuple[float, str], ...]
) -> None:
    phases(store, store.only_run(phases=False), 0, (1, "setup"), (2, "measure"), *restart)
    assert store.figures()["measure_seconds"] == RUN_SECONDS - 2


def test_gpus_on_which_a_runs_processes_were_seen_count_as_its_own(store: SyntheticStore) -> None:
    node = store.only_run(3)
    del store.rows["run_devices"][1:]
    looks = ((0, "run-1", 4), (1, "run-1", 5), (1, "run-1", 4), (2, None, 4), (2, "run-1", RUN_SECONDS + 1))
    for gpu, run_id, second in looks:
        seen = {"run_id": run_id, "pid": 100 + second}
        store.rows["gpu_process_samples"].append({**node.at(second, gpu), **seen})
    summarize_runs(store.connection, ["run-1"], COMPUTED_AT + timedelta(seconds=1))
    found = store.ask("SELECT device_id, time, rank, pid, found_by FROM run_devices ORDER BY device_id")
    assert [(row["device_id"], row["found_by"], row["pid"]) for row in found] == [
        (node.gpus[0], "workload", None),
        (node.gpus[1], "processes", 104),
    ]
    assert (found[1]["time"], found[1]["rank"]) == (EPOCH + timedelta(seconds=4), None)


def test_a_program_that_reports_no_gpu_still_gets_the_figures_of_the_one_it_used(store: SyntheticStore) -> None:
    node = store.only_run(1, gpus=[], phases=False)
    store.rows["gpu_process_samples"].append({**node.at(1, gpu=0), "pid": 5, "run_id": "run-1"})
    assert store.figures()["gpu_power_watts"] == 150.0


def put_steps(
    store: SyntheticStore, node: Node, rank: int, wall_seconds: Sequence[float], gpu_seconds: float | None = None
) -> None:
    """Put in the measured steps of a rank."""
    for number, seconds in enumerate(wall_seconds):
        step = {"step": number, "phase": "measure", "wall_seconds": seconds, "gpu_seconds": gpu_seconds, "items": 1.0}
        at = node.at(BEFORE_MEASURE + number / 100)
        store.rows["steps"].append({**at, "run_id": "run-1", "rank": rank, **step})


def test_the_median_step_is_that_of_the_slowest_rank(store: SyntheticStore) -> None:
    put_steps(store, store.only_run(throughput=640.0), 1, [0.2] * 3)
    assert store.figures()["step_seconds"] == pytest.approx(0.2)


def test_a_step_that_is_launched_long_before_the_gpu_ends_it_takes_as_long_as_the_gpu_needs(
    store: SyntheticStore,
) -> None:
    put_steps(store, store.only_run(throughput=640.0), 1, [0.001] * 3, gpu_seconds=0.3)
    assert store.figures()["step_seconds"] == pytest.approx(0.3)


def test_a_step_in_ten_that_takes_three_times_as_long_shows_in_the_least_steady_rank(store: SyntheticStore) -> None:
    node = store.only_run()
    store.rows["steps"].clear()
    put_steps(store, node, 0, [0.1] * 100)
    put_steps(store, node, 1, [0.1] * 90 + [0.3] * 10)
    figures = store.figures()
    assert figures["step_p95_over_p50"] == pytest.approx(3, rel=0.01)
    assert not {"items_per_gpu_second", "gpu_utilization_spread_percent"} & figures.keys()


def test_handing_steps_over_in_bursts_is_not_unsteady_where_the_gpus_own_times_are_known(store: SyntheticStore) -> None:
    node = store.only_run()
    store.rows["steps"].clear()
    put_steps(store, node, 0, [0.001] * 90 + [0.9] * 10, 0.1)
    assert store.figures()["step_p95_over_p50"] == pytest.approx(1)


def test_utilisation_that_swings_has_a_spread_and_steady_one_has_none(store: SyntheticStore) -> None:
    store.only_run(1)
    for number, sample in enumerate(store.rows["gpu_samples"]):
        sample["utilization_percent"] = (20.0, 80.0)[number % 2]
    assert store.figures()["gpu_utilization_spread_percent"] == pytest.approx(60, abs=1)


def test_throughput_of_all_ranks_is_divided_among_the_gpus(store: SyntheticStore) -> None:
    node = store.node("lab-1", "lab", gpus=["NVIDIA A100"] * 4)
    add_ranked(store, node, 4, 1000.0)
    assert store.figures()["items_per_gpu_second"] == pytest.approx(250)


def test_an_agent_that_comes_back_takes_reason_and_exit_code_of_a_lost_run_with_it(store: SyntheticStore) -> None:
    lost = {**store.only_run().at(RUN_SECONDS + 60), "session_id": None, "run_id": "run-1", "status": "lost"}
    store.rows["run_states"].append({**lost, "reason": "its agent has not been heard of"})
    assert store.ask("SELECT status, exit_code, reason, ended_at FROM runs") == [
        {"status": "succeeded", "exit_code": 0, "reason": None, "ended_at": EPOCH + timedelta(seconds=RUN_SECONDS)}
    ]


def test_what_held_clocks_back_is_a_share_of_time_by_cause(store: SyntheticStore) -> None:
    node = store.only_run(1, gpus=[7777])
    at = node.at(BEFORE_MEASURE + 1)
    # A hardware slowdown comes alone, with heat, or with the power brake; 2 and 256 are settings.
    for reasons in (2 | 256, 4, 4 | 32, 8, 8 | 64, 8 | 128, 0, 1):
        store.gpu_sample(at, 7777, throttle_reasons=reasons)
    figures = store.figures()
    assert {name: figures[f"gpu_{name}_percent"] for name in ("throttled", "power_capped", "thermal_slowdown")} == {
        "throttled": 62.5,
        "power_capped": 25.0,
        "thermal_slowdown": 25.0,
    }
    assert (figures["gpu_power_brake_percent"], figures["gpu_hardware_slowdown_percent"]) == (12.5, 12.5)
    words = store.ask("SELECT reasons, held_back FROM gpu_throttling WHERE device_id = 7777 ORDER BY throttle_reasons")
    assert [(row["reasons"], row["held_back"]) for row in words] == [
        ("", False),
        ("idle", False),
        ("power cap", True),
        ("hardware slowdown", True),
        ("power cap, software thermal slowdown", True),
        ("hardware slowdown, hardware thermal slowdown", True),
        ("hardware slowdown, power brake", True),
        ("application clocks, display clocks", False),
    ]


def test_the_clock_of_a_busy_gpu_is_a_share_of_its_maximum_and_low_ones_need_a_reason(store: SyntheticStore) -> None:
    node = store.only_run(2)
    for row in store.rows["session_devices"]:
        row["sm_clock_max_mhz"] = 2000.0
    del store.rows["gpu_samples"]
    at = node.at(BEFORE_MEASURE + 1)
    for clock, utilization, reasons in ((300.0, 10.0, 0), (1200.0, 90.0, 0), (1800.0, 90.0, 4), (2000.0, 90.0, 0)):
        values = {"utilization_percent": utilization, "throttle_reasons": reasons, "sm_clock_mhz": clock}
        store.gpu_sample(at, node.gpus[0], **values)
        store.gpu_sample(at, node.gpus[1], **values | {"sm_clock_mhz": 2000.0})
    figures = store.figures()
    assert figures["sm_clock_busy_percent"] == 90
    assert figures["gpu_clock_unexplained_percent"] == pytest.approx(100 / 3 / 2)


def test_signs_of_wear_just_before_and_after_a_short_run_are_its_own(store: SyntheticStore) -> None:
    node = store.only_run(2)
    for second, gpu, pending in ((-600, 0, 1), (-5, 0, 0), (RUN_SECONDS + 4, 1, 1)):
        read = {"memory_repair_pending": pending, "memory_repair_failed": 0}
        store.rows["gpu_health_samples"].append({**node.at(second, gpu), **read})
    for second, errors in ((BEFORE_MEASURE, 7), (BEFORE_MEASURE + 5, 9)):
        store.gpu_sample(node.at(second), node.gpus[1], ecc_errors_uncorrected=errors)
    figures = store.figures()
    assert (figures["gpu_memory_repair_pending"], figures["gpu_memory_repair_failed"]) == (1, 0)
    assert figures["gpu_ecc_errors_uncorrected"] == 2


def test_runs_that_have_not_ended_or_are_unknown_get_no_figures(store: SyntheticStore) -> None:
    store.only_run(status="running")
    summarize_runs(store.connection, ["run-1", "unknown"], COMPUTED_AT)
    summarize_runs(store.connection, [], COMPUTED_AT)
    assert store.figures() == {}


def test_only_the_runs_asked_for_are_summarized(store: SyntheticStore) -> None:
    node = store.node("spruce", "laptop")
    for number in (1, 2):
        store.run(f"run-{number}", node, start_seconds=100 * number)
    store.write(summarize=False)
    summarize_runs(store.connection, ["run-2"], COMPUTED_AT)
    assert store.ask("SELECT DISTINCT run_id FROM metrics") == [{"run_id": "run-2"}]


def test_every_metric_has_one_name_and_a_listed_source() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    assert {metric.source.name for metric in METRICS} == {source.name for source in SOURCES}


def test_slow_steps_at_the_beginning_are_left_out_of_the_steady_throughput(store: SyntheticStore) -> None:
    node = store.only_run()
    store.rows["steps"].clear()
    steady = [0.1, 0.101, 0.099, 0.1002, 0.0998] * 34
    put_steps(store, node, 0, [0.3] * 20 + [0.15] * 10 + steady)
    figures = store.figures()
    assert figures["steps_before_steady"] == 30
    assert figures["steady_throughput"] == pytest.approx(10, rel=0.001)


def test_equal_steps_are_steady_from_the_first_and_few_steps_have_no_such_figure(store: SyntheticStore) -> None:
    node = store.only_run()
    store.rows["steps"].clear()
    put_steps(store, node, 0, [0.1] * 100)
    put_steps(store, node, 1, [0.3] * 20 + [0.1] * 29)
    figures = store.figures()
    assert figures["steps_before_steady"] == 0
    assert figures["steady_throughput"] == pytest.approx(10)


def test_ranks_on_cpus_have_figures_of_their_own(store: SyntheticStore) -> None:
    add_ranked(store, store.node("spruce", "laptop"), 2, 100.0)
    parts = store.ask("SELECT part, value FROM metric_parts WHERE part_kind = 'rank' AND metric = 'throughput'")
    assert sorted((row["part"], row["value"]) for row in parts) == [(0, 50.0), (1, 50.0)]


# Sessions beside a run's own, by what they differ in from it, and whether their samples are of its machine.
BESIDE = {
    "clone": ({"boot_id": "boot-2"}, False),
    "clone with another name": ({"boot_id": "boot-2", "hostname": "fir"}, False),
    "renamed machine": ({"hostname": "fir"}, True),
    "node's agent, seen from a pod": ({"hostname": "fir", "container": "containerd"}, True),
    "another agent": ({}, True),
}


def test_samples_are_of_the_runs_machine_and_not_of_another_with_its_identity(store: SyntheticStore) -> None:
    for name, (differs, _) in BESIDE.items():
        node = store.node("spruce", "laptop", boot_id="boot-1", gpus=["NVIDIA L4"])
        store.run(name, node, start_seconds=0)
        other = store.beside(node, **differs)
        own = [row for row in store.rows["host_samples"] if row["node_id"] != node.node_id]
        for second in range(RUN_SECONDS):
            for one, used, watts in ((node, 10, 100.0), (other, 30, 300.0)):
                at = one.at(second + (one is other) / 2)
                own.append({**at, "memory_used_bytes": used, "cpu_power_watts": watts})
                store.gpu_sample(at, one.gpus[0], sm_active_percent=float(used))
                gone = {"remapped_rows_uncorrectable": used, "device_id": one.gpus[0]}
                store.rows["gpu_health_samples"].append({**at, **gone})
        store.rows["host_samples"] = own
    shares = {name: 2 if is_same_machine else 1 for name, (_, is_same_machine) in BESIDE.items()}
    for metric, alone, off in (
        ("memory_used_bytes", 10, 1),
        ("sm_active_percent", 10, 1),
        ("cpu_energy_joules", 100.0 * MEASURE_SECONDS, 10.0 * MEASURE_SECONDS),
    ):
        expected = {name: pytest.approx(share * alone, abs=off) for name, share in shares.items()}
        assert figures_of_runs(store, metric) == expected, metric


def test_a_run_has_the_samples_of_all_its_sessions_and_of_all_its_nodes(store: SyntheticStore) -> None:
    node = store.node("spruce", "laptop", boot_id="boot-1")
    store.run("run-1", node, start_seconds=0, nodes=2)
    # Its agent was started again by a restart of the node, and said how the run ended.
    again = store.beside(node, boot_id="boot-2")
    store.rows["run_states"].append({**again.at(RUN_SECONDS), "run_id": "run-1", "status": "succeeded"})
    other = store.node("birch", "laptop", boot_id="boot-3")
    store.run("run-1", other, start_seconds=0, nodes=2, rank=1)
    store.rows["host_samples"].clear()
    for second in range(RUN_SECONDS):
        is_late = second >= RUN_SECONDS / 2
        store.rows["host_samples"].append({**(again if is_late else node).at(second), "cpu_percent": 90.0 * is_late})
        store.rows["host_samples"].append({**other.at(second), "cpu_percent": 50.0})
    rows = store.ask("SELECT value, samples FROM metrics WHERE metric = 'cpu_percent'")
    assert [(row["value"], row["samples"]) for row in rows] == [(pytest.approx(50, abs=5), 2 * MEASURE_SECONDS + 2)]
