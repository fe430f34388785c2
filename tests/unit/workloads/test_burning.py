import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpuagent_workloads.suite.gpu_burn.burn import PERIOD_SECONDS, alternate, pace
from tests.unit.workloads.runs import (
    assert_gone,
    measuring,
    of_kind,
    phases_of,
    read_events,
    results_of,
    run_config,
    run_workloads,
)

MIB = 1 << 20
PHASES = ["setup", "warmup", "measure", "teardown", "end"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_gpu_burn_refuses_without_a_gpu_in_words() -> None:
    done = run_workloads("run", "gpu-burn")
    assert done.returncode == 2
    assert "gpu-burn needs" in done.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("load", [30, 100])
def test_gpu_burn_reaches_its_load(load: int, tmp_path: Path) -> None:
    events = run_config("gpu-burn", tmp_path, load=load, memory_bytes=500 * MIB, duration=3)
    assert phases_of(events) == PHASES
    results = results_of(events)
    assert results["held_bytes"] == 500 * MIB
    assert results["achieved_load"] == pytest.approx(load, rel=0.2)


@given(share=st.floats(0.01, 1), product_seconds=st.floats(1e-6, 1))
def test_work_makes_up_its_share_of_every_period(share: float, product_seconds: float) -> None:
    products, period = pace(share, product_seconds)
    assert products * product_seconds / period == pytest.approx(share)
    # The period is the usual one, but for half a product more or less, and long enough for one.
    assert abs(period - PERIOD_SECONDS) <= product_seconds / share


class Clock:
    """A clock that goes on only when somebody works or rests."""

    seconds = rested_seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def work(self, seconds: float) -> None:
        self.seconds += seconds

    def rest(self, seconds: float) -> None:
        self.work(seconds)
        self.rested_seconds += seconds


@pytest.mark.parametrize(
    ("works", "rested_seconds"),
    [
        pytest.param([0.2] * 10, 8, id="work and rest alternate"),
        pytest.param([5.0, *[0.5] * 100], 2.5, id="longer work leaves no rest and is not made up for"),
    ],
)
def test_work_and_rest_fill_their_period(works: list[float], rested_seconds: float) -> None:
    clock, work = Clock(), iter(works)
    alternate(lambda: clock.work(next(work)), 1.0, lambda: clock.seconds >= 10 - 1e-6, clock.now, clock.rest)
    assert clock.seconds == pytest.approx(10)
    assert clock.rested_seconds == pytest.approx(rested_seconds)


def test_it_uses_the_share_of_a_core_that_was_asked_for(tmp_path: Path) -> None:
    some = ("--load", "40", "--cores", "1", "--duration", "1")
    with measuring("cpu-burn", *some, GPUAGENT_RUN_DIR=str(tmp_path)) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    events = read_events(tmp_path / "events.0.0.jsonl")
    # The kernel's account of the whole tree has the start as well; a busy machine may give less than was asked for.
    results = results_of(events)
    assert 0 < results["cpu_seconds"] <= usage.ru_utime + usage.ru_stime
    assert 0 < results["achieved_load"] < 70
    assert phases_of(events) == PHASES
    units = {event["name"]: event.get("unit") for event in of_kind(events, "result")}
    assert units == {"cores": None, "cpu_seconds": "s", "achieved_load": "%"}


@pytest.mark.parametrize("stop", [os.kill, os.killpg], ids=["process", "group"])
def test_it_starts_a_worker_a_core_and_ends_them_at_its_end(stop: Callable[[int, int], None], tmp_path: Path) -> None:
    with measuring("cpu-burn", GPUAGENT_RUN_DIR=str(tmp_path)) as process:
        workers = psutil.Process(process.pid).children()
        assert len(workers) == len(os.sched_getaffinity(0))
        stop(process.pid, signal.SIGTERM)
        process.communicate()
    assert process.returncode == 143
    assert_gone(workers)
    events = read_events(tmp_path / "events.0.0.jsonl")
    assert "achieved_load" in results_of(events)
    assert phases_of(events)[-1] == "end"


def test_no_worker_survives_its_parent() -> None:
    with measuring("cpu-burn", "--cores", "1") as process:
        workers = psutil.Process(process.pid).children()
        process.kill()
    assert_gone(workers)


def test_a_worker_that_dies_fails_the_run() -> None:
    with measuring("cpu-burn", "--cores", "1") as process:
        psutil.Process(process.pid).children()[0].kill()
        _, errors = process.communicate()
    assert process.returncode == 1
    assert "ended by itself" in errors
