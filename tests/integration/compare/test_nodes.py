"""The statement behind `collector nodes`."""

from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuagent_collector.cli import cli
from gpuagent_collector.cli.nodes import NODES_SQL
from tests.integration.compare.synthetic import EPOCH, SyntheticStore
from tests.support.recent import Site
from tests.support.stores import open_store


def test_a_node_has_the_gpus_of_its_newest_session_whoever_else_sees_them_and_each_once(
    any_store: SyntheticStore,
) -> None:
    any_store.node("spruce", "laptop", gpus=["NVIDIA L4", "NVIDIA T4"])
    (session,), devices = any_store.rows["sessions"], list(any_store.rows["session_devices"])
    later = EPOCH + timedelta(minutes=1)
    older = {"session_id": 99, "started_at": EPOCH - timedelta(days=1)}
    any_store.rows["sessions"].append({**session, **older})
    for device in devices:
        any_store.rows["session_devices"] += [{**device, "time": later}, {**device, "session_id": 99, "time": later}]
    any_store.write()
    (node,) = any_store.ask(NODES_SQL)
    assert sorted(node["gpu_names"]) == ["NVIDIA L4", "NVIDIA T4"]
    assert node["gpu_memory_bytes"] == 48_000_000_000
    assert node["mig_instances"] == 0


@pytest.mark.parametrize("runs", [True, False])
def test_a_pod_that_measures_itself_does_not_hide_the_node_s_own_agent(store: SyntheticStore, runs: bool) -> None:
    store.node("spruce", "laptop", gpus=["NVIDIA L4", "NVIDIA T4"])
    (agent,) = store.rows["sessions"]
    pod = {**agent, "session_id": 99, "started_at": EPOCH + timedelta(minutes=1), "memory_limit_bytes": 1}
    store.rows["sessions"].append(pod)
    if not runs:
        store.rows["session_ends"].append({"session_id": 99, "time": EPOCH + timedelta(minutes=3)})
    # The pod was the last to deliver.
    for session_id, seconds in ((agent["session_id"], 179), (99, 180)):
        mark = {"session_id": session_id, "number": 1, "committed_at": EPOCH + timedelta(seconds=seconds)}
        store.rows["marks"].append(mark)
    (node,) = store.ask(NODES_SQL)
    assert (node["memory_limit_bytes"], node["ended_at"], len(node["gpu_names"])) == (None, None, 2)
    assert node["last_seen_at"] == EPOCH + timedelta(minutes=3)


def test_mig_instances_are_counted_beside_their_gpu_and_their_memory_is_not_counted_again(
    store: SyntheticStore,
) -> None:
    store.node("spruce", "laptop", gpus=["NVIDIA H200"])
    (gpu,) = store.rows["session_devices"]
    for number in (1, 2):
        instance = {"device_id": number, "parent_device_id": gpu["device_id"], "name": "NVIDIA H200 MIG 1g.18gb"}
        store.rows["session_devices"].append({**gpu, **instance})
    (node,) = store.ask(NODES_SQL)
    assert (node["gpu_names"], node["gpu_memory_bytes"], node["mig_instances"]) == (["NVIDIA H200"], 24_000_000_000, 2)


TWO_DAYS = 2 * 86_400.0


def test_machines_that_share_an_identity_and_wrong_clocks_are_warned_of(tmp_path: Path) -> None:
    store_name = str(tmp_path / "runs.duckdb")
    with open_store(store_name) as store, store.connect() as connection:
        synthetic = SyntheticStore(connection=connection)
        node = synthetic.node("spruce", "laptop", boot_id="boot-1", started_at=EPOCH)
        other = synthetic.beside(node, hostname="fir", boot_id="boot-2", started_at=EPOCH + timedelta(minutes=5))
        # A boot before, which did not end in good order, is the same machine.
        synthetic.beside(node, hostname="spruce", boot_id="boot-0", started_at=EPOCH - timedelta(minutes=5))
        for one, offset_seconds in ((node, TWO_DAYS), (other, 0.0)):
            synthetic.rows["clock_offsets"].append({**one.at(600), "offset_seconds": offset_seconds})
            mark = {"session_id": one.session_id, "number": 1, "committed_at": EPOCH + timedelta(seconds=600)}
            synthetic.rows["marks"].append(mark)
        synthetic.rows["session_ends"].append(node.at(590))
        synthetic.write()
        found = {row["hostname"]: row for row in synthetic.ask(NODES_SQL)}
    assert list(found) == ["fir"]
    assert found["fir"]["same_identity"] == ["spruce"]
    printed = CliRunner().invoke(cli, ["nodes", "--store", store_name])
    assert "--node-id" in printed.stderr
    assert "spruce" in printed.stderr


def test_a_node_whose_clock_is_behind_has_left_by_the_collectors_clock(tmp_path: Path) -> None:
    store_name = str(tmp_path / "runs.duckdb")
    with open_store(store_name) as store, store.connect() as connection:
        site = Site(connection=connection)
        node_id = site.node("spruce")
        site.add("clock_offsets", -TWO_DAYS, session_id=node_id, node_id=node_id, offset_seconds=TWO_DAYS)
        site.add("session_ends", -TWO_DAYS - 60, session_id=node_id, node_id=node_id)
    printed = CliRunner(env={"COLUMNS": "200"}).invoke(cli, ["nodes", "--store", store_name])
    assert "2 d behind" in printed.stderr
    assert "left 2 d ago" not in printed.stdout


def test_a_node_has_the_number_of_impossible_readings_of_its_present_agent(store: SyntheticStore) -> None:
    spruce, _ = store.node("spruce", "laptop"), store.node("alder", "laptop")
    power = {"quantity": "gpu_samples.power_watts", "source": "nvml"}
    store.rows["impossible_readings"] += [{**spruce.at(second), **power, "readings": 3} for second in (1, 2)]
    assert {node["hostname"]: node["impossible_readings"] for node in store.ask(NODES_SQL)} == {
        "spruce": 6,
        "alder": None,
    }
