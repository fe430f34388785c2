"""The time in which kernels of a job ran, as the driver tells it."""

from pathlib import Path
from typing import Any

import pytest

from gpuagent.sources.nvml_processes import NvmlProcesses
from gpuagent.sources.source import Value
from gpuagent.sources.support.idle_gpus import Activity, Use
from gpuagent.sources.support.nvml_api import nvml_error
from gpuagent_common.keys import key
from tests.support.nvml_replay import FIRST, NvmlRecording
from tests.support.pid_namespaces import plant_process
from tests.support.sources import OpenSource
from tests.support.trees import instant, plant
from tests.unit.sources.test_owners import open_job, plant_docker, read


class Driver(NvmlRecording):
    """A GPU on which process 47 runs kernels for some time; the driver samples its use six times a second."""

    def __init__(self, begin: float, end: float) -> None:
        super().__init__({"open()": [{"answer": None}], "devices()": [{"answer": [FIRST]}]})
        self.begin, self.end, self.seconds = begin, end, 0.0

    def replay(self, call: str) -> Any:
        """Return what the driver says now: of the samples since a time stamp their mean."""
        if call.startswith("nvmlDeviceGetComputeRunningProcesses_v3"):
            return [{"pid": 47, "usedGpuMemory": 1000}] if self.seconds < self.end else []
        if not call.startswith("nvmlDeviceGetProcessUtilization"):
            return super().replay(call)
        since = int(call.removesuffix(")").rpartition(" ")[2]) / 1e6 - 1000
        last = int(self.seconds * 6)
        shares = [self._share(number) for number in range(last - 60, last + 1) if number / 6 > since]
        if not any(shares):
            raise nvml_error(6, "Not Found")
        mean = round(100 * sum(shares) / len(shares))
        return [{"pid": 47, "timeStamp": round((1000 + last / 6) * 1e6), "smUtil": mean, "memUtil": 0}]

    def _share(self, number: int) -> float:
        return max(0.0, 6 * (min(number / 6, self.end) - max((number - 1) / 6, self.begin)))


@pytest.mark.parametrize("shift", [0.0, 0.7, 1.3, 2.2, 2.9, 3.6, 4.5])
def test_the_time_on_the_gpu_is_that_of_the_kernels(tmp_path: Path, open_source: OpenSource, shift: float) -> None:
    begin, end = 8 + shift, 23.1 + 2 * shift
    owners, holders = open_job(tmp_path, open_source)
    (tmp_path / "proc/self/ns").mkdir()
    (tmp_path / "proc/self/ns/pid").symlink_to("pid:[4026531836]")
    driver = Driver(begin, end)
    processes = open_source(NvmlProcesses, proc=tmp_path / "proc", open_nvml=driver.open, holders=holders)
    states: dict[Value, dict[str, Value]] = {}
    for second in range(40):
        driver.seconds = second
        if second >= end and (tmp_path / "proc/47").exists():
            (tmp_path / "proc/47").rename(tmp_path / "gone")
        list(processes.read(instant(second)))
        states |= read(owners, second, "owners")
    # The driver has the end only with the sample after it.
    assert states[key(FIRST)]["gpu_seconds"] == pytest.approx(end - begin, rel=0.01, abs=1 / 6)


def test_the_last_use_of_a_process_counts_when_the_job_goes_on(tmp_path: Path, open_source: OpenSource) -> None:
    source, holders = open_job(tmp_path, open_source)
    plant_process(tmp_path / "proc", 48)
    plant(tmp_path, {"proc/48/cgroup": (tmp_path / "proc/47/cgroup").read_text()})
    holders.note_processes(FIRST, {}, {})
    read(source, 0, "owners")
    (tmp_path / "proc/48").rename(tmp_path / "gone")
    read(source, 1, "owners")
    use = Use(sm_percent=50.0, memory_percent=0.0, busy_seconds=2.0, covered_seconds=4.0)
    holders.add_use(FIRST, {48: use}, instant(5))
    assert read(source, 5, "owner_samples")[key(FIRST)]["gpu_seconds"] == 2.0


def test_alone_on_a_gpu_its_own_time_with_kernels_counts(tmp_path: Path, open_source: OpenSource) -> None:
    activity = Activity()
    source, holders = open_job(tmp_path, open_source, activity=activity)
    holders.note_processes(FIRST, {47: 1000}, {47: 40.0})
    use = Use(sm_percent=40.0, memory_percent=0.0, busy_seconds=4.0, covered_seconds=10.0)
    activity.note_busy(FIRST, 50, instant(0))
    assert read(source, 0, "owner_samples")[key(FIRST)]["gpu_seconds"] == 0.0
    for second in range(1, 11):
        activity.note_busy(FIRST, 50, instant(second))
    holders.add_use(FIRST, {47: use}, instant(10))
    assert read(source, 10, "owner_samples")[key(FIRST)]["gpu_seconds"] == 5.0
    # Of a GPU with a stranger only what the driver says of the job's own processes is known.
    plant_process(tmp_path / "proc", 48)
    holders.note_processes(FIRST, {47: 1000, 48: 1000}, {47: 40.0, 48: 20.0})
    activity.note_busy(FIRST, 60, instant(20))
    holders.add_use(FIRST, {47: use}, instant(20))
    assert read(source, 20, "owner_samples")[key(FIRST)]["gpu_seconds"] == 9.0


def test_kernels_of_a_job_that_has_ended_are_not_those_of_its_neighbour(
    tmp_path: Path, open_source: OpenSource
) -> None:
    activity = Activity()
    source, holders = open_job(tmp_path, open_source, activity=activity)
    plant_docker(tmp_path, 50)
    for second in range(11):
        activity.note_busy(FIRST, 100, instant(second))
    holders.note_processes(FIRST, {47: 1000, 50: 1000}, {47: 0.0, 50: 100.0})
    for seconds in (10, 15):
        read(source, seconds, "owners")
    (tmp_path / "proc/50").rename(tmp_path / "gone")
    holders.note_processes(FIRST, {47: 1000}, {47: 0.0})
    for second in range(16, 21):
        activity.note_busy(FIRST, 100, instant(second))
    rows = [reading.values for reading in source.read(instant(20)) if reading.table == "owner_samples"]
    assert [row["gpu_seconds"] for row in rows if row.get("device_id") == key(FIRST)] == [0.0]
