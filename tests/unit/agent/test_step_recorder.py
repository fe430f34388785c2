"""Steps with CUDA events, which stand in for a GPU's: the device is half a millisecond behind the host."""

import gc
import json
import sys
import types
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuagent.runs.events import EventTailer
from gpuagent.sources.source import Value
from gpuagent_report import Run, steps
from gpuagent_report.steps import StepRecorder

LAG_NANO = 500_000


class Clock:
    """The clock of the host, which only `pass_time` moves."""

    def __init__(self) -> None:
        self.nano = 1_000_000_000

    def perf_counter_ns(self) -> int:
        return self.nano

    def time_ns(self) -> int:
        return 1_800_000_000_000_000_000 + self.nano

    def pass_time(self, milliseconds: float) -> None:
        self.nano += round(milliseconds * 1e6)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.nano = clock.nano

        def query(self) -> bool:
            return clock.nano > self.nano + LAG_NANO

        def elapsed_time(self, other: "Event") -> float:
            if not other.query():
                raise RuntimeError("device not ready")
            return (other.nano - self.nano) / 1e6

    cuda = types.SimpleNamespace(
        is_initialized=lambda: True,
        is_current_stream_capturing=lambda: clock.nano == 0,
        Event=Event,
        get_device_properties=lambda _device: types.SimpleNamespace(name="NVIDIA H200", uuid="1-2"),
        current_device=lambda: 0,
        max_memory_allocated=lambda: 5,
        max_memory_reserved=lambda: 6,
    )
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(steps, "time", clock)
    yield clock


def read(folder: Path) -> tuple[EventTailer, list[dict[str, Value]]]:
    tailer = EventTailer("a-run", folder)
    rows: list[dict[str, Value]] = []
    while new := [dict(event.row) for event in tailer.read_new() if event.table == "steps"]:
        rows += new
    assert tailer.digest.complaint is None
    return tailer, rows


def test_short_steps_share_cuda_events_and_their_times_add_up(clock: Clock, tmp_path: Path) -> None:
    recorder = StepRecorder(str(tmp_path), "observed")
    for _ in range(3000):
        clock.pass_time(1)
        recorder.end_step(4)
    clock.pass_time(1)
    recorder.finish()
    tailer, rows = read(tmp_path)
    assert [row["step"] for row in rows if row["phase"] == "measure"] == list(range(2995))
    assert {row["gpu_seconds"] for row in rows[1:2900]} == {0.001}
    assert {row["wall_seconds"] for row in rows[1:]} == {0.001}
    assert tailer.digest.steps.by_rank[0].seconds == pytest.approx(2.995)
    assert tailer.digest.results["peak_memory_allocated"] == 5


def test_each_phase_begins_once_with_its_first_step(clock: Clock, tmp_path: Path) -> None:
    recorder = StepRecorder(str(tmp_path), "observed")
    for _ in range(8):
        clock.pass_time(1)
        recorder.end_step(4)
    recorder.finish()
    (path,) = tmp_path.glob("events.*.jsonl")
    events = [json.loads(line) for line in path.read_text().splitlines()]
    phases = [(event["name"], (event["t"] - clock.time_ns()) / 1e6) for event in events if event["event"] == "phase"]
    # The first step has no time of its own: the warm-up begins at its end.
    assert phases == [("setup", -8), ("warmup", -7), ("measure", -3), ("teardown", 0), ("end", 0)]


def test_a_checkpoint_is_a_gap_whose_device_time_counts_to_no_step(clock: Clock, tmp_path: Path) -> None:
    recorder = StepRecorder(str(tmp_path))
    for number in range(100):
        clock.pass_time(300 if number == 50 else 1)
        recorder.end_step(4, "checkpoint" if number == 50 else None)
    recorder.finish()
    _, rows = read(tmp_path)
    assert rows[50]["wall_seconds"] is None
    assert {row["wall_seconds"] for row in rows[1:50]} == {0.001}
    assert all(row["gpu_seconds"] in (None, 0.001) for row in rows)


def test_a_reason_in_every_step_makes_no_gaps(clock: Clock, tmp_path: Path) -> None:
    recorder = StepRecorder(str(tmp_path))
    for _ in range(50):
        clock.pass_time(30)
        recorder.end_step(None, "validation")
    recorder.finish()
    _, rows = read(tmp_path)
    assert {row["wall_seconds"] for row in rows[1:]} == {0.03}
    assert "gap" not in (tmp_path / "events.0.0.jsonl").read_text()


def test_many_fast_steps_fit_into_the_lines_that_the_agent_reads(clock: Clock, tmp_path: Path) -> None:
    recorder = StepRecorder(str(tmp_path))
    for number in range(20_000):
        clock.pass_time(0.01)
        recorder.end_step(number % 7)
    recorder.finish()
    _, rows = read(tmp_path)
    assert len(rows) == 20_000
    assert max(map(len, (tmp_path / "events.0.0.jsonl").read_bytes().splitlines())) < 64 * 1024


def test_a_child_made_by_fork_frees_no_cuda_event_since_that_would_end_it(clock: Clock, tmp_path: Path) -> None:
    recorder = StepRecorder(str(tmp_path), "observed")
    for _ in range(18):
        clock.pass_time(300)
        recorder.end_step(4)
    marks = [*recorder._free_marks, recorder._last_mark, *recorder._marks.values()]
    assert len(marks) == 5
    events = [weakref.ref(mark) for mark in marks]
    del marks
    recorder.forget()
    gc.collect()
    assert all(event() is not None for event in events)


def test_figures_that_are_no_numbers_are_refused_and_the_run_says_so(tmp_path: Path) -> None:
    run = Run(StepRecorder(str(tmp_path), "reported"))
    run.metric("loss", float("nan"), step=1)
    run.result("accuracy", float("inf"))
    run.result("accuracy", 97.0)
    run.finish()
    digest = EventTailer("a-run", tmp_path).read_all()
    assert digest.results["accuracy"] == 97.0
    assert digest.malformed == 2
    assert "'loss' is nan" in (digest.complaint or "")
