import signal
import subprocess
from pathlib import Path

import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.registry import find
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.suite.gpu_burn.burn import PERIOD_SECONDS, alternate, period_seconds, products_per_period
from gpuagent_workloads.suite.memory_burn import BLOCK_BYTES, Config, available_bytes, hold
from tests.unit.workloads.runs import (
    environment_with,
    phases_of,
    read_events,
    results_of,
    run_workloads,
    workloads_command,
)

MIB = 1 << 20


def test_memory_burn_holds_what_was_asked_for_until_it_is_terminated(tmp_path: Path) -> None:
    with subprocess.Popen(
        workloads_command("run", "memory-burn", "--bytes", str(200 * MIB)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment_with(GPUAGENT_RUN_DIR=str(tmp_path)),
    ) as process:
        assert process.stderr is not None
        assert any(line == "memory-burn: measure\n" for line in process.stderr)
        held_bytes = psutil.Process(process.pid).memory_info().rss
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 143
    assert held_bytes > 200 * MIB
    events = read_events(tmp_path / "events.0.0.jsonl")
    assert phases_of(events) == ["setup", "warmup", "measure", "teardown", "end"]
    results = results_of(events)
    assert results["asked_bytes"] == 200 * MIB
    assert results["held_bytes"] == pytest.approx(200 * MIB, rel=0.1)
    assert "stream_bytes_per_second" not in results


def test_streaming_reports_its_bandwidth_and_ends_with_its_time() -> None:
    reporter = Reporter(None)
    find("memory-burn").run(Config(bytes=5 * BLOCK_BYTES, stream=True, duration=0.1), reporter)
    results = {result.name: result.value for result in reporter.results}
    assert results["asked_bytes"] == 5 * BLOCK_BYTES
    assert float(results["stream_bytes_per_second"]) > 0


def test_memory_is_held_in_whole_blocks_that_are_all_written() -> None:
    memory = hold(3 * BLOCK_BYTES)
    assert len(memory) == 3 * BLOCK_BYTES
    assert all(any(memory[start : start + 4096]) for start in range(0, len(memory), 4096))


def test_more_memory_than_there_is_is_refused() -> None:
    with pytest.raises(MisuseError, match="available bytes"):
        find("memory-burn").run(Config(bytes=1 << 50), Reporter(None))


def write_proc(proc: Path, cgroup: str) -> None:
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal:        8000000 kB\nMemAvailable:    4000000 kB\n")
    (proc / "self" / "cgroup").write_text(cgroup)


def write_limit(folder: Path, limit: str, usage: str, names: tuple[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in zip(names, (limit, usage), strict=True):
        (folder / name).write_text(f"{text}\n")


V2 = ("memory.max", "memory.current")
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")


@pytest.mark.parametrize(
    ("cgroup", "limits", "expected"),
    [
        pytest.param("0::/\n", [], 4_000_000 * 1024, id="the host's without a cgroup"),
        pytest.param(
            "0::/pods/mine\n",
            [("pods/mine", "max", "5", V2), ("pods", "1000", "400", V2)],
            600,
            id="the tightest",
        ),
        pytest.param(
            "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n", [("memory", "3000", "1000", V1)], 2000, id="a container's root"
        ),
        pytest.param("0::/\n", [("", "1000", "1500", V2)], 0, id="nothing over the limit"),
    ],
)
def test_available_memory_is_what_the_host_and_the_cgroups_leave(
    cgroup: str, limits: list[tuple[str, str, str, tuple[str, str]]], expected: int, tmp_path: Path
) -> None:
    write_proc(tmp_path, cgroup)
    for folder, limit, usage, names in limits:
        write_limit(tmp_path / "cgroup" / folder, limit, usage, names)
    assert available_bytes(tmp_path, tmp_path / "cgroup") == expected


def test_a_kernel_that_does_not_say_what_is_available_is_an_error(tmp_path: Path) -> None:
    write_proc(tmp_path, "0::/\n")
    (tmp_path / "meminfo").write_text("MemTotal: 1 kB\n")
    with pytest.raises(WorkloadError, match="give --bytes"):
        available_bytes(tmp_path, tmp_path / "cgroup")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_gpu_burn_refuses_without_a_gpu_in_words() -> None:
    done = run_workloads("run", "gpu-burn")
    assert done.returncode == 2
    assert "gpu-burn needs a GPU" in done.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("load", [30, 100])
def test_gpu_burn_reaches_its_load(load: int, tmp_path: Path) -> None:
    arguments = ("--load", str(load), "--memory-bytes", str(500 * MIB), "--duration", "3")
    done = run_workloads("run", "gpu-burn", *arguments, GPUAGENT_RUN_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    events = read_events(tmp_path / "events.0.0.jsonl")
    assert phases_of(events) == ["setup", "warmup", "measure", "teardown", "end"]
    results = results_of(events)
    assert results["held_bytes"] == 500 * MIB
    assert results["achieved_load"] == pytest.approx(load, rel=0.2)


@given(share=st.floats(0.01, 1), product_seconds=st.floats(1e-6, 1))
def test_work_makes_up_its_share_of_every_period(share: float, product_seconds: float) -> None:
    products = products_per_period(share, product_seconds)
    period = period_seconds(share, products, product_seconds)
    assert products * product_seconds / period == pytest.approx(share)
    # The period is the usual one, but for half a product more or less, and long enough for one.
    assert abs(period - PERIOD_SECONDS) <= product_seconds / share


class Clock:
    """A clock that goes on only when somebody works or rests."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.rested_seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def work(self, seconds: float) -> None:
        self.seconds += seconds

    def rest(self, seconds: float) -> None:
        self.seconds += seconds
        self.rested_seconds += seconds


def test_work_and_rest_alternate_within_the_period() -> None:
    clock = Clock()
    alternate(lambda: clock.work(0.2), 1.0, lambda: clock.seconds >= 10, clock.now, clock.rest)
    assert clock.seconds == pytest.approx(10)
    assert clock.rested_seconds == pytest.approx(8)


def test_work_that_takes_longer_than_its_period_leaves_no_rest_and_is_not_made_up_for() -> None:
    clock = Clock()
    works = iter([5.0, *[0.5] * 100])
    alternate(lambda: clock.work(next(works)), 1.0, lambda: clock.seconds >= 10, clock.now, clock.rest)
    assert clock.rested_seconds == pytest.approx(2.5)
