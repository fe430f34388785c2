"""The line about a run at the bottom of a terminal, and the GPUs' readings in it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from gpuagent.cli.progress import ProgressLine
from gpuagent.sampling.rows import LatestGpus
from gpuagent.sources.source import Value
from gpuagent_common.errors import GpuAgentError
from gpuagent_proto.v1.agent_service_pb2 import GpuNow


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def report(directory: Path, *events: Mapping[str, object], rank: int = 0) -> None:
    with (directory / f"events.{rank}.0.jsonl").open("a") as file:
        file.writelines(f"{json.dumps({'t': 1, **event})}\n" for event in events)


def steps(first: int, number: int) -> list[Mapping[str, object]]:
    return [{"event": "step", "phase": "measure", "step": first + index} for index in range(number)]


def line(directory: Path, clock: Clock, gpus: Sequence[GpuNow] = (), usual: float | None = None) -> ProgressLine:
    return ProgressLine("run-1", directory, lambda _run_id: gpus, usual, clock=clock)


def test_the_line_has_time_steps_their_pace_and_the_rest(tmp_path: Path) -> None:
    clock = Clock()
    shown = line(tmp_path, clock, usual=100.0)
    assert shown.read() == "run-1  0:00 · about 1:40 left"
    report(tmp_path, {"event": "phase", "name": "setup"})
    assert shown.read() == "run-1  0:00 · setup · about 1:40 left"
    report(tmp_path, *steps(0, 1))
    clock.seconds = 10.0
    assert shown.read() == "run-1  0:10 · 1 measured step · about 1:30 left"
    report(tmp_path, *steps(1, 40))
    report(tmp_path, *steps(0, 41), rank=1)
    clock.seconds = 15.0
    assert shown.read() == "run-1  0:15 · 41 measured steps, 8 steps/s · about 1:25 left"
    clock.seconds = 3723.0
    assert shown.read().startswith("run-1  1:02:03 · 41 measured steps")
    assert "left" not in shown.read()


def test_the_line_of_a_search_has_what_was_tried_and_the_most_time_it_takes(tmp_path: Path) -> None:
    clock = Clock()
    shown = line(tmp_path, clock)
    report(tmp_path, {"event": "phase", "name": "setup"})
    clock.seconds = 10.0
    report(tmp_path, {"event": "tried", "name": "window 1: rate 8 keeps limits", "most_left_seconds": 50.0})
    assert shown.read() == "run-1  0:10 · window 1: rate 8 keeps limits · up to 0:50 left"
    clock.seconds = 70.0
    assert shown.read() == "run-1  1:10 · window 1: rate 8 keeps limits"
    report(tmp_path, {"event": "phase", "name": "warmup"})
    assert shown.read() == "run-1  1:10 · warmup"


@pytest.mark.parametrize(
    ("gpus", "words"),
    [
        ([GpuNow(utilization_percent=97.4, power_watts=412.0, memory_used_bytes=38.2e9)], "GPU 97 %, 412 W, 38.2 GB"),
        ([GpuNow(utilization_percent=90.0), GpuNow(utilization_percent=80.0, power_watts=300)], "2 GPUs 85 %, 300 W"),
        ([GpuNow()], "GPU"),
    ],
)
def test_the_line_has_the_known_readings_of_the_runs_gpus(tmp_path: Path, gpus: list[GpuNow], words: str) -> None:
    assert line(tmp_path, Clock(), gpus).read() == f"run-1  0:00 · {words}"


def test_an_agent_that_is_gone_leaves_the_rest_of_the_line(tmp_path: Path) -> None:
    def fail(_run_id: str) -> Sequence[GpuNow]:
        raise GpuAgentError("gone")

    assert ProgressLine("run-1", tmp_path, fail, None, clock=Clock()).read() == "run-1  0:00"


def test_the_line_is_below_whole_lines_of_output_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "12")
    clock = Clock()
    shown = line(tmp_path, clock, usual=100.0)
    shown.draw(is_at_line_start=True)  # too early
    clock.seconds = 2.0
    shown.draw(is_at_line_start=False)
    assert capsys.readouterr().err == ""
    shown.draw(is_at_line_start=True)
    shown.draw(is_at_line_start=True)  # nothing new
    shown.clear()
    shown.clear()
    # click leaves the codes that erase a line to terminals.
    assert capsys.readouterr().err == "\rrun-1  0:02\r"
    shown.draw(is_at_line_start=True)
    assert capsys.readouterr().err == "\rrun-1  0:02"


SECOND = 1_000_000_000


def test_only_recent_readings_of_gpus_with_runs_are_kept() -> None:
    latest = LatestGpus()
    rows: list[Mapping[str, Value]] = [
        {"time": SECOND, "device_id": 1, "utilization_percent": 50, "memory_used_bytes": None},
        {"time": 2 * SECOND, "device_id": 1, "power_watts": 300.5},
        {"time": 2 * SECOND, "device_id": 2, "power_watts": 70.0},
    ]
    latest.take("gpu_samples", rows)
    holders: list[Mapping[str, Value]] = [
        {"time": 2 * SECOND, "device_id": 1, "pid": 7, "run_id": "run-1"},
        {"time": 2 * SECOND, "device_id": 1, "pid": 8, "run_id": None},
    ]
    latest.take("gpu_process_samples", holders)
    assert list(latest.read(3 * SECOND)) == [GpuNow(run_ids=["run-1"], utilization_percent=50, power_watts=300.5)]
    # At 6.5 s the utilisation is too old, later everything.
    assert list(latest.read(6_500_000_000)) == [GpuNow(run_ids=["run-1"], power_watts=300.5)]
    assert list(latest.read(9 * SECOND)) == []
