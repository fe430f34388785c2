"""Processes on a GPU and the runs they belong to."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from gpuagent.sources.nvml_processes import NvmlProcesses
from gpuagent.sources.source import SourceContext
from gpuagent_common.keys import key
from tests.support.nvml_replay import NOT_SUPPORTED, NvmlRecording
from tests.support.pid_namespaces import plant_process, plant_view
from tests.support.trees import instant, plant

FIRST = "GPU-11111111-aaaa-4aaa-8aaa-111111111111"
SECOND = "GPU-22222222-bbbb-4bbb-8bbb-222222222222"


class OneRun:
    def processes(self) -> Sequence[tuple[str, int]]:
        return (("run", 4700),)


def load(name: str) -> NvmlRecording:
    recording = NvmlRecording.load(name)
    recording.outcomes |= {f"nvmlDeviceGetProcessUtilization({uuid}, 0)": [NOT_SUPPORTED] for uuid in (FIRST, SECOND)}
    return recording


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Processes of a run that uses a GPU."""
    plant_process(tmp_path, 4700)
    plant_process(tmp_path, 4711, parent=4700, uses_cuda=True)
    return tmp_path


def test_a_process_is_a_runs_where_it_descends_from_its_supervisor(proc: Path) -> None:
    plant_view(proc, 50, of_host=True)
    source = NvmlProcesses(SourceContext(proc=proc, open_nvml=load("busy").open, runs=OneRun()))
    count, process = source.read(instant(0))
    assert count.values["process_count"] == 1
    assert (process.values["pid"], process.values["run_id"]) == (4711, "run")
    source.close()


def test_in_a_container_the_runs_process_is_found_but_nobody_is_counted(proc: Path) -> None:
    plant_view(proc, 7, of_host=False)
    source = NvmlProcesses(SourceContext(proc=proc, open_nvml=load("busy").open, runs=OneRun()))
    (process,) = source.read(instant(0))
    assert (process.table, process.values["run_id"]) == ("gpu_process_samples", "run")
    source.close()


def test_processes_are_counted_and_listed(tmp_path: Path) -> None:
    context = SourceContext(proc=plant_view(tmp_path, 50, of_host=True), open_nvml=load("two_gpus").open)
    source = NvmlProcesses(context)
    idle, busy, process = source.read(instant(0))
    assert idle.values == {"device_id": key(FIRST), "process_count": 0}
    assert busy.values == {"device_id": key(SECOND), "process_count": 1}
    assert process.table == "gpu_process_samples"
    assert process.values == {
        "device_id": key(SECOND),
        "pid": 4711,
        "run_id": None,
        "pod_uid": None,
        "container_id": None,
        "memory_used_bytes": 19_900_000_000,
        "utilization_percent": None,
        "memory_utilization_percent": None,
    }
    source.close()


def test_an_old_driver_lists_processes_without_their_memory(tmp_path: Path) -> None:
    context = SourceContext(proc=plant_view(tmp_path, 50, of_host=True), open_nvml=load("old_gpu").open)
    source = NvmlProcesses(context)
    _, process = source.read(instant(0))
    assert (process.values["pid"], process.values["memory_used_bytes"]) == (99, None)
    source.close()


def test_memory_of_0_bytes_is_memory_that_the_driver_does_not_tell(tmp_path: Path) -> None:
    recording = load("busy")
    processes = [{"pid": 99, "usedGpuMemory": 0}]
    recording.outcomes[f"nvmlDeviceGetComputeRunningProcesses_v3({FIRST})"] = [{"answer": processes}]
    source = NvmlProcesses(SourceContext(proc=plant_view(tmp_path, 50, of_host=True), open_nvml=recording.open))
    _, process = source.read(instant(0))
    assert process.values["memory_used_bytes"] is None
    source.close()


def test_who_holds_a_gpu_is_told_with_its_pod_where_the_hosts_processes_are_seen(proc: Path) -> None:
    uid, container = "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d", "ab" * 32
    plant(
        proc, {"4711/cgroup": f"0::/../../kubepods-pod{uid.replace('-', '_')}.slice/cri-containerd-{container}.scope\n"}
    )
    plant_view(proc, 50, of_host=True)
    source = NvmlProcesses(SourceContext(proc=proc, open_nvml=load("busy").open))
    _, process = source.read(instant(0))
    assert (process.values["pod_uid"], process.values["container_id"]) == (uid, container)
    source.close()
