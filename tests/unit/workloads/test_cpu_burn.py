import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.unit.workloads.runs import (
    environment_with,
    of_kind,
    phases_of,
    read_events,
    results_of,
    run_workloads,
    workloads_command,
)


def start(*arguments: str, run_directory: Path) -> subprocess.Popen[str]:
    """Start cpu-burn and return when it measures."""
    process = subprocess.Popen(
        workloads_command("run", "cpu-burn", *arguments),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment_with(GPUAGENT_RUN_DIR=str(run_directory)),
        start_new_session=True,
    )
    assert process.stderr is not None
    assert any(line == "cpu-burn: measure\n" for line in process.stderr)
    return process


def assert_gone(workers: list[psutil.Process]) -> None:
    _, left = psutil.wait_procs(workers, timeout=60)
    assert all(worker.status() == psutil.STATUS_ZOMBIE for worker in left)


def test_it_uses_the_share_of_a_core_that_was_asked_for(tmp_path: Path) -> None:
    with start("--load", "40", "--cores", "1", "--duration", "2", run_directory=tmp_path) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    results = results_of(read_events(tmp_path / "events.0.0.jsonl"))
    # The kernel's account of the whole tree, start-up included; a busy machine may give less than was asked for.
    assert 0.2 < usage.ru_utime + usage.ru_stime < 1.6
    assert 10 < results["achieved_load"] < 70


def test_its_phases_and_results_are_in_the_run_directory(tmp_path: Path) -> None:
    done = run_workloads("run", "cpu-burn", "--cores", "1", "--duration", "0.2", GPUAGENT_RUN_DIR=str(tmp_path))
    assert done.returncode == 0
    events = read_events(tmp_path / "events.0.0.jsonl")
    assert phases_of(events) == ["setup", "warmup", "measure", "teardown", "end"]
    units = {event["name"]: event.get("unit") for event in of_kind(events, "result")}
    assert units == {"cores": None, "cpu_seconds": "s", "achieved_load": "%"}


@pytest.mark.parametrize("stop", [os.kill, os.killpg], ids=["process", "group"])
def test_it_starts_a_worker_for_each_core_and_ends_them_when_it_is_terminated(
    stop: Callable[[int, int], None], tmp_path: Path
) -> None:
    with start(run_directory=tmp_path) as process:
        workers = psutil.Process(process.pid).children()
        assert len(workers) == len(os.sched_getaffinity(0))
        stop(process.pid, signal.SIGTERM)
        process.communicate()
    assert process.returncode == 143
    assert_gone(workers)
    events = read_events(tmp_path / "events.0.0.jsonl")
    assert "achieved_load" in results_of(events)
    assert phases_of(events)[-1] == "end"


def test_no_worker_survives_its_parent(tmp_path: Path) -> None:
    with start("--cores", "1", run_directory=tmp_path) as process:
        workers = psutil.Process(process.pid).children()
        process.kill()
    assert_gone(workers)


def test_a_worker_that_dies_fails_the_run(tmp_path: Path) -> None:
    with start("--cores", "1", run_directory=tmp_path) as process:
        psutil.Process(process.pid).children()[0].kill()
        _, errors = process.communicate()
    assert process.returncode == 1
    assert "a worker ended by itself" in errors
