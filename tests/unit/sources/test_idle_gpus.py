"""Idle GPUs, which are asked less often until the first sign of work."""

from collections.abc import Callable
from typing import Any

import pytest

from gpuagent.sources.nvml import NvmlGpu, NvmlPower
from gpuagent.sources.nvml_gpm import NvmlGpm
from gpuagent.sources.nvml_processes import NvmlProcesses
from gpuagent.sources.source import Source, SourceContext
from tests.support.nvml_replay import FIRST, SECOND, NvmlRecording
from tests.support.sources import Runs, read_all

UTILIZATION = f"nvmlDeviceGetUtilizationRates({FIRST})"
PERIOD_SECONDS = 0.1


class Node:
    """The sources of a node with a recorded NVML, read at their rates from the second 0 on."""

    def __init__(self, recorded: str | NvmlRecording) -> None:
        self.recording = NvmlRecording.load(recorded) if isinstance(recorded, str) else recorded
        self.runs = Runs()
        context = SourceContext(open_nvml=self.recording.open, runs=self.runs)
        self.gpu = NvmlGpu(context)
        self.slow: tuple[Source, ...] = (NvmlPower(context), NvmlGpm(context), NvmlProcesses(context))
        self.ticks = 0
        # The seconds of rows of the fast lane and of GPM, and the last error.
        self.rows: list[float] = []
        self.counted: list[float] = []
        self.error: str | None = None

    def read(self, seconds: float) -> list[float]:
        """Read on for some seconds; return when there was a row of the fast lane."""
        before = len(self.rows)
        for _ in range(round(seconds / PERIOD_SECONDS)):
            now_seconds = round(self.ticks * PERIOD_SECONDS, 1)
            readings, self.error = read_all(self.gpu, now_seconds)
            self.rows += [now_seconds for reading in readings if reading.table == "gpu_samples"]
            if self.ticks % 10 == 0:
                for source in self.slow:
                    readings, _ = read_all(source, now_seconds)
                    self.counted += [now_seconds for reading in readings if "sm_active_percent" in reading.values]
            self.ticks += 1
        return self.rows[before:]

    def calls(self, beginning: str) -> int:
        return sum(count for call, count in self.recording.calls.items() if call.startswith(beginning))

    def answer(self, call: str, answer: Any) -> None:
        self.recording.outcomes[call] = [{"answer": answer}]


@pytest.fixture
def idle() -> Node:
    """Return a node whose GPU has been idle for long enough."""
    recorded = NvmlRecording.load("h200_idle").outcomes
    (uuid,) = recorded["devices()"][0]["answer"]
    # The recording was made of a GPU that cools down: its last answers are those of a cool one.
    still = {call.replace(uuid, FIRST): outcomes[-1:] for call, outcomes in recorded.items()}
    node = Node(NvmlRecording({**still, "devices()": [{"answer": [FIRST]}]}))
    assert len(node.read(10)) == 100
    node.read(5)
    return node


def test_an_idle_gpu_is_asked_once_a_second_and_its_counters_less_often(idle: Node) -> None:
    idle.recording.calls.clear()
    assert len(idle.read(60)) == 60
    assert idle.recording.calls[UTILIZATION] == 60
    assert idle.calls("gpm(") == 6
    assert idle.calls("nvmlDeviceGetComputeRunningProcesses") == 12
    assert idle.calls("nvmlDeviceGetSamples") == 0
    # 8 questions each second, and a few on the slow lane; at full rate it would be 80 and 3.
    assert sum(idle.recording.calls.values()) < 60 * 10


def work(node: Node) -> None:
    node.answer(UTILIZATION, {"gpu": 5, "memory": 0})


def hold_memory(node: Node) -> None:
    node.answer(f"nvmlDeviceGetMemoryInfo({FIRST}, 33554472)", {"used": 500 << 20, "reserved": 1, "total": 2 << 30})


def draw_power(node: Node) -> None:
    node.answer(f"nvmlDeviceGetFieldValues({FIRST}, 186)", 130_000)


@pytest.mark.parametrize("begin", [work, hold_memory, draw_power])
def test_the_first_sign_of_work_has_the_gpu_read_at_full_rate(idle: Node, begin: Callable[[Node], None]) -> None:
    idle.recording.calls.clear()
    begin(idle)
    rows = idle.read(5)
    # Found within a second, and followed by a row every tick.
    assert rows[0] <= 16.0
    assert rows[1:] == [round(rows[0] + PERIOD_SECONDS * tick, 1) for tick in range(1, len(rows))]
    assert idle.calls("nvmlDeviceGetSamples") >= 4


def test_a_process_keeps_a_gpu_from_being_idle(idle: Node) -> None:
    process = [{"pid": 7, "usedGpuMemory": 1 << 20}]
    idle.answer(f"nvmlDeviceGetComputeRunningProcesses_v3({FIRST})", process)
    idle.read(5)
    assert len(idle.read(30)) == 300
    idle.answer(f"nvmlDeviceGetComputeRunningProcesses_v3({FIRST})", [])
    idle.read(12)
    assert len(idle.read(30)) == 30


def test_a_run_loses_no_sample(idle: Node) -> None:
    idle.read(0.5)
    idle.runs.supervisors = (("run-1", 4711),)
    assert len(idle.read(60)) == 600
    idle.runs.supervisors = ()
    idle.read(12)
    assert len(idle.read(30)) == 30


def test_counters_that_cover_the_time_before_the_work_are_left_out(idle: Node) -> None:
    assert idle.counted[-1] == 10.0
    work(idle)
    idle.read(3)
    # Asked at 15.0 s, too, but that answer is mostly of the time before.
    assert idle.counted[-2:] == [16.0, 17.0]


def test_a_gpu_without_utilisation_is_never_idle() -> None:
    node = Node("old_gpu")
    assert len(node.read(30)) == 300


def test_each_gpu_is_idle_or_at_work_for_itself() -> None:
    node = Node("two_gpus")
    node.read(15)
    node.recording.calls.clear()
    node.read(10)
    calls = [node.recording.calls[f"nvmlDeviceGetUtilizationRates({uuid})"] for uuid in (FIRST, SECOND)]
    assert calls == [10, 100]


def test_an_idle_gpu_that_is_lost_is_missed_within_a_second_and_not_back_before_it_answers(idle: Node) -> None:
    intact = idle.recording.outcomes
    idle.recording.outcomes = {call: [{"error": 15, "words": "GPU is lost"}] for call in intact}
    idle.read(1.1)
    assert idle.error == f"cannot read {FIRST}: GPU is lost"
    for _ in range(20):
        idle.read(0.1)
        assert idle.error
    idle.recording.outcomes = intact
    idle.read(5)
    assert idle.error is None


def test_looks_of_an_idle_gpu_keep_their_beat_however_late_they_come() -> None:
    node = Node("idle")
    node.read(20)
    seconds = (20.0, 20.9, 20.99, 21.95, 21.985)
    assert [bool(read_all(node.gpu, each)[0]) for each in seconds] == [True, False, True, False, True]
