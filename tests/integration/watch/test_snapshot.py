import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuagent_collector.query.execute import Parameter
from gpuagent_collector.query.guard import Guard, store_relations
from gpuagent_collector.watch.snapshot import GPUS_SQL, NODES_SQL, RUNS_SQL, NodeNow, Snapshot, take_snapshot
from gpuagent_common.keys import key
from tests.support.recent import Site, fill
from tests.support.stores import on_both_kinds, open_store

pytestmark = pytest.mark.slow


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    with open_store(f"{getattr(request, 'param', '')}{tmp_path}/runs.store") as store, store.connect() as connection:
        # In a transaction `now()` stands still, however slow the test is.
        connection.begin()
        ((now,),) = connection.execute("SELECT now()::TIMESTAMP").fetchall()
        yield Site(connection=connection, now=now)


def snapshot(site: Site) -> Snapshot:
    def ask(sql: str, parameters: Sequence[Parameter] = ()) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = site.connection.execute(sql, list(parameters)).to_arrow_table().to_pylist()
        return rows

    return take_snapshot(ask)


def only_node(site: Site) -> NodeNow:
    (node,) = snapshot(site).nodes
    return node


def test_each_figure_is_its_own_last_reading_because_they_come_at_different_rates(site: Site) -> None:
    node_id = site.node("alder", gpus=1)
    site.gpu(node_id, "alder", 0, -6, process_count=3, power_watts=100.0)
    site.gpu(node_id, "alder", 0, -2, power_watts=200.0)
    (gpu,) = only_node(site).gpus
    read = [gpu.figures[column] for column in ("process_count", "power_watts", "sm_active_percent")]
    assert read == [3, 200.0, None]


def test_nodes_without_recent_samples_are_silent_have_left_or_are_left_out(site: Site) -> None:
    for hostname, heard_age in (("silent", 300), ("left", 300), ("back", 300), ("old", 3700)):
        node_id = site.node(hostname, heard_age=heard_age, gpus=1)
        site.host(node_id, -300, cpu_percent=50.0)
    for hostname, age in (("left", "299 SECOND"), ("back", "1 HOUR")):
        ended = f"INSERT INTO session_ends SELECT session_id, node_id, now()::TIMESTAMP - INTERVAL {age} FROM sessions"
        site.connection.execute(f"{ended} WHERE hostname = ?", [hostname])
    again = {"session_id": 5, "node_id": key("back"), "node_uuid": f"node-{key('back')}", "hostname": "back"}
    site.add("sessions", -3000, **again)
    site.connection.execute("UPDATE marks SET session_id = 5 WHERE session_id = ?", [key("back")])
    nodes = {node.hostname: node for node in snapshot(site).nodes}
    states = {hostname: (node.is_silent, node.has_left) for hostname, node in nodes.items()}
    assert states == {"silent": (True, False), "left": (False, True), "back": (True, False)}
    assert nodes["silent"].figures["cpu_percent"] is None
    assert nodes["silent"].heard_age_seconds == 300
    assert [gpu.name for gpu in nodes["silent"].gpus] == ["NVIDIA H200"]
    assert nodes["left"].ended_age_seconds == 299


def test_samples_from_a_clock_that_is_ahead_by_a_day_are_not_read_and_the_clock_is_told(site: Site) -> None:
    node_id = site.node("alder")
    site.host(node_id, 80_000, cpu_percent=50.0)
    site.add("clock_offsets", 80_000, session_id=node_id, node_id=node_id, offset_seconds=-80_000.0)
    node = only_node(site)
    assert node.figures["cpu_percent"] is None
    assert node.clock_is_wrong


def test_only_the_gpus_of_a_nodes_newest_session_are_shown(site: Site) -> None:
    site.node("alder", gpus=2)
    older = {"session_id": 5, "node_id": only_node(site).node_id, "node_uuid": "x", "hostname": "alder"}
    site.add("sessions", -7200, **older)
    site.add("session_devices", -7200, session_id=5, node_id=older["node_id"], device_id=99, name="gone")
    assert len(only_node(site).gpus) == 2


def test_a_mig_instance_goes_by_the_number_of_its_gpu_and_follows_it(site: Site) -> None:
    node_id = site.node("alder", gpus=2)
    for index in (0, 1):  # as NVML counts the instances of each GPU
        instance = {"device_id": 70 + index, "parent_device_id": key("alder1"), "device_index": index}
        site.add("session_devices", -3600, session_id=node_id, node_id=node_id, gpu_instance_id=7 + index, **instance)
    assert [gpu.place for gpu in only_node(site).gpus] == ["0", "1", "1.7", "1.8"]


def test_runs_under_way_come_first_then_those_that_ended_within_the_hour(site: Site) -> None:
    node_id = site.node("alder")
    site.run("long-ago", node_id, (-9000, "running"), (-8000, "succeeded"))
    site.run("recent", node_id, (-900, "running"), (-800, "succeeded"))
    site.run("open", node_id, (-9000, "running"))
    site.run("queued", node_id, (-9000, "queued"))
    runs = snapshot(site).runs
    assert [(run.run_id, run.is_open) for run in runs] == [("open", True), ("queued", True), ("recent", False)]
    assert [run.elapsed_seconds for run in runs] == [9000, None, 100]


def test_a_warm_up_is_no_run_that_succeeded(site: Site) -> None:
    site.run("first", site.node("alder"), (-900, "running"), (-800, "succeeded"), experiment="train-warm-up")
    assert [run.status for run in snapshot(site).runs] == ["warm-up"]


def test_a_runs_phase_and_rate_are_those_of_now_summed_over_ranks(site: Site) -> None:
    node_id = site.node("alder")
    site.run("open", node_id, (-9000, "running"))
    at = {"session_id": node_id, "node_id": node_id, "run_id": "open"}
    for seconds, phase in ((-8000, "warmup"), (-7000, "measure")):
        site.add("run_events", seconds, **at, rank=0, event="phase", name=phase)
    for rank in (0, 1):
        for seconds, wall in ((-7000, 100.0), (-2, 0.5), (-1, 0.5)):
            site.add("steps", seconds, **at, rank=rank, phase="measure", step=0, wall_seconds=wall, items=64.0)
        site.add("steps", -1, **at, rank=rank, phase="measure", step=9, wall_seconds=0.5)
    (run,) = snapshot(site).runs
    assert run.phase == "measure"
    assert run.items_per_second == pytest.approx(2 * 128)


@on_both_kinds("site")
def test_a_run_under_way_shows_its_steps_their_pace_and_the_rest_by_earlier_runs_of_its_command(site: Site) -> None:
    node_id = site.node("alder")
    for run_id, seconds in (("first", 100), ("second", 300), ("third", 200)):
        site.run(run_id, node_id, (-5000, "running"), (seconds - 5000, "succeeded"))
    site.run("failed", node_id, (-4000, "running"), (-3999, "failed"))
    site.run("other", node_id, (-4000, "running"), (-3000, "succeeded"), workload="gpt")
    site.run("open", node_id, (-50, "running"))
    site.run("late", node_id, (-900, "running"))
    at = {"session_id": node_id, "node_id": node_id, "run_id": "open", "phase": "measure"}
    for rank in (0, 1):
        for seconds, step in ((-12, 100), (-2, 120)):
            site.add("steps", seconds, **at, rank=rank, step=step)
    runs = {run.run_id: run for run in snapshot(site).runs}
    run = runs["open"]
    assert (run.steps, run.items_per_second) == (121, None)
    assert run.steps_per_second == pytest.approx(2, rel=0.5)
    assert run.left_seconds == 150
    late = runs["late"]
    assert (late.steps, late.steps_per_second, late.left_seconds) == (None, None, None)


def test_a_run_that_has_ended_shows_its_throughput_not_the_rate_of_its_last_steps(site: Site) -> None:
    node_id = site.node("alder")
    for run_id in ("ended", "uncomputed"):
        site.run(run_id, node_id, (-100, "running"), (-2, "succeeded"))
        at = {"session_id": node_id, "node_id": node_id, "run_id": run_id, "rank": 0, "phase": "measure"}
        site.add("steps", -3, **at, step=9, wall_seconds=1.0, items=670.0)
    metric = {"run_id": "ended", "metric": "throughput", "unit": "items/s"}
    for seconds, value in ((-1, 1876.0), (-2, 1.0)):
        site.add("run_metrics", seconds, **metric, value=value)
    runs = {run.run_id: run.items_per_second for run in snapshot(site).runs}
    assert runs == {"ended": 1876.0, "uncomputed": None}


def test_a_run_that_counts_steps_has_a_rate_of_steps_when_it_has_ended(site: Site) -> None:
    node_id = site.node("alder")
    site.run("ended", node_id, (-100, "running"), (-2, "succeeded"))
    at = {"session_id": node_id, "node_id": node_id, "run_id": "ended", "rank": 0, "phase": "measure"}
    site.add("results", -2, **at, name="throughput", value=7.5, unit="steps/s")
    site.add("run_metrics", -1, run_id="ended", metric="throughput", unit="items/s", value=7.5)
    (run,) = snapshot(site).runs
    assert (run.items_per_second, run.steps_per_second) == (None, 7.5)


def test_the_questions_are_such_as_any_client_may_ask(site: Site) -> None:
    guard = Guard(store_relations(site.connection))
    assert [guard.check(sql) for sql in (NODES_SQL, GPUS_SQL, RUNS_SQL)]


def rows_scanned(plan: dict[str, Any], table: str) -> int:
    own = plan.get("operator_rows_scanned", 0) if table in plan.get("extra_info", {}).get("Table", "") else 0
    return int(own) + sum(rows_scanned(child, table) for child in plan.get("children", ()))


def test_old_samples_are_passed_over_without_being_read(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "runs.duckdb")) as store, store.connect() as connection:
        connection.execute(
            "INSERT INTO gpu_samples BY NAME SELECT 1 AS node_id, 1 AS device_id, 1.0 AS power_watts,"
            " now()::TIMESTAMP - INTERVAL 1 DAY + INTERVAL 10 MILLISECOND * range AS time FROM range(400_000)"
        )
        fill(store)
        (plan,) = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {GPUS_SQL}").fetchall()
    assert 0 < rows_scanned(json.loads(plan[1]), "gpu_samples") < 200_000


def test_two_machines_with_one_identity_are_not_mixed_and_both_are_named(site: Site) -> None:
    node_id = site.node("alder")
    site.connection.execute("UPDATE sessions SET boot_id = 'boot-1'")
    at = {"session_id": 5, "node_id": node_id}
    site.add("sessions", -60, **at, hostname="birch", boot_id="boot-2")
    # An earlier boot of the node, whose messages came late: it is no other machine.
    site.add("sessions", -9000, session_id=6, node_id=node_id, hostname="alder", boot_id="boot-0")
    site.connection.execute("INSERT INTO marks VALUES (5, 9, now()::TIMESTAMP)")
    # A clone that was given an identity of its own some minutes ago.
    site.add("sessions", -900, session_id=7, node_id=node_id, hostname="cedar", boot_id="boot-3")
    site.add("clock_offsets", -600, session_id=7, node_id=node_id, offset_seconds=0.0)
    site.connection.execute("INSERT INTO marks VALUES (7, 9, now()::TIMESTAMP - INTERVAL 10 MINUTES)")
    late = "INSERT INTO marks VALUES (6, 9, now()::TIMESTAMP - INTERVAL 2 MINUTES)"
    site.connection.execute(late)
    site.host(node_id, -2, memory_used_bytes=1)
    site.add("host_samples", -1, **at, memory_used_bytes=100)
    site.run("run-1", node_id, (-50, "running"))
    found = snapshot(site)
    (node,) = found.nodes
    assert (node.hostname, node.figures["memory_used_bytes"], list(node.same_identity)) == ("alder", 1, ["birch"])
    assert [run.hostname for run in found.runs] == ["alder"]


@on_both_kinds("site")
def test_a_clock_that_is_days_behind_is_told_and_ages_are_by_the_collectors(site: Site) -> None:
    node_id = site.node("alder")
    two_days = 2 * 86_400.0
    site.host(node_id, -two_days, cpu_percent=50.0)
    site.add("clock_offsets", -two_days, session_id=node_id, node_id=node_id, offset_seconds=two_days)
    site.add("session_ends", -two_days - 20, session_id=node_id, node_id=node_id)
    site.run("run-1", node_id, (-two_days - 30, "running"))
    found = snapshot(site)
    (node,), (run,) = found.nodes, found.runs
    assert node.clock_is_wrong
    assert node.clock_offset_seconds == two_days
    assert (node.ended_age_seconds, run.elapsed_seconds) == (20, 30)
