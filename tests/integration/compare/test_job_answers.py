"""`collector jobs`, `job` and `idle` on a made-up store: what is unknown stays unknown, and each name finds its job."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.compare.filled import add_job
from tests.support.commands import Collector, made_up

# What follows from the time of kernels.
KERNELS = {"gpu_seconds", "idle_seconds", "idle_now_seconds", "sm_percent"}
CONTAINER = "7e7d1054" * 8

Asked = Callable[..., dict[str, Any]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of the store."""
    return tmp_path / "runs.duckdb"


def test_of_a_gpu_whose_driver_does_not_report_kernels_it_is_unknown_whether_it_was_used(
    path: Path, ask: Asked
) -> None:
    with made_up(path) as store:
        node = store.node("gpu-1", "hpc", gpus=["NVIDIA H200"] * 2)
        add_job(store, node, "4711", 0, 3600, busy=[50.0, 50.0], title="train", user_name="alice")
        for row in (*store.rows["owners"], *store.rows["owner_samples"]):
            if row.get("device_id") == node.gpus[1]:
                row.update(dict.fromkeys(row.keys() & KERNELS))
    found = ask(path, "job", "4711")
    assert (found["gpus_held"], found["gpus_used"], found["gpu_percent"], found["changes"]) == (2, None, None, [])
    assert "kernel" not in found["answer"]
    assert [part["gpu_percent"] for part in found["parts"]] == [None, 50, None]


def test_a_job_that_has_just_begun_is_not_told_to_ask_for_fewer_gpus(path: Path, ask: Asked) -> None:
    with made_up(path) as store:
        node = store.node("gpu-1", "hpc", gpus=["NVIDIA H200"] * 2)
        for job, seconds in (("4711", 120), ("4712", 7200)):
            add_job(store, node, job, 7200 - seconds, seconds, busy=[0.0], ended=False, user_name="alice")
    assert ask(path, "job", "4711")["changes"] == []
    assert ask(path, "job", "4712")["changes"] != []


def test_the_shares_of_a_job_s_time_follow_the_use_of_its_gpu(path: Path, ask: Asked) -> None:
    with made_up(path) as store:
        node = store.node("gpu-1", "hpc", gpus=["NVIDIA H200"])
        add_job(store, node, "4711", 0, 3600, busy=[30.0], user_name="alice", held_cores=4.0)
    because = ask(path, "job", "4711")["because"]
    assert sum(because.values()) == pytest.approx(100)
    assert 20 < because["GPUs busy"] <= 30


def test_a_container_is_found_by_what_lists_show_of_its_id(path: Path, ask: Asked) -> None:
    with made_up(path) as store:
        add_job(store, store.node("gpu-1", "hpc"), CONTAINER, 0, 3600, kind="podman", user_name="alice")
    assert [ask(path, "job", CONTAINER[:length])["job"] for length in (12, 23, 64)] == [CONTAINER] * 3


def test_the_next_command_names_a_job_as_a_shell_takes_it(path: Path, collector: Collector) -> None:
    with made_up(path) as store:
        add_job(store, store.node("gpu-1", "hpc"), "$(reboot)", 0, 3600, kind="unit", user_name="a b")
    for command, quoted in ((["jobs"], "'$(reboot)'"), (["job", "$(reboot)"], "'a b'")):
        _, out, _ = collector(command[0], path, *command[1:], columns=200)
        assert quoted in out
