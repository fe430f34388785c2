"""Processes on a GPU: the runs that they belong to, and how busy they keep it."""

from pathlib import Path
from typing import Any

import pytest

from gpuagent.errors import SourceError
from gpuagent.sources.nvml_processes import NvmlProcesses
from gpuagent.sources.source import Value
from gpuagent_common.keys import key
from tests.support.nvml_replay import FIRST, NOT_SUPPORTED, SECOND, NvmlRecording
from tests.support.pid_namespaces import plant_process, plant_view
from tests.support.sources import OpenSource, Runs
from tests.support.trees import instant, plant

RUNNING = f"nvmlDeviceGetComputeRunningProcesses_v3({FIRST})"
NOTHING_NEW = {"error": 6, "words": "Not Found"}


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


@pytest.fixture
def host(tmp_path: Path) -> Path:
    return plant_view(tmp_path, 50, of_host=True)


@pytest.mark.parametrize(("pid", "of_host", "counts"), [(50, True, [1]), (7, False, [])], ids=["host", "container"])
def test_a_runs_process_is_found_and_counted_on_the_host(
    proc: Path, pid: int, of_host: bool, counts: list[int], open_source: OpenSource
) -> None:
    plant_view(proc, pid, of_host=of_host)
    source = open_source(NvmlProcesses, proc=proc, open_nvml=load("busy").open, runs=Runs(("run", 4700)))
    *counted, process = source.read(instant(0))
    assert [reading.values["process_count"] for reading in counted] == counts
    assert process.table == "gpu_process_samples"
    assert (process.values["pid"], process.values["run_id"]) == (4711, "run")


def test_processes_are_counted_and_listed(host: Path, open_source: OpenSource) -> None:
    source = open_source(NvmlProcesses, proc=host, open_nvml=load("two_gpus").open)
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


@pytest.mark.parametrize(("name", "answers"), [("old_gpu", {}), ("busy", {"pid": 99, "usedGpuMemory": 0})])
def test_memory_that_the_driver_does_not_report_is_absent(
    host: Path, name: str, answers: dict[str, int], open_source: OpenSource
) -> None:
    recording = load(name)
    if answers:
        recording.outcomes[RUNNING] = [{"answer": [answers]}]
    source = open_source(NvmlProcesses, proc=host, open_nvml=recording.open)
    _, process = source.read(instant(0))
    assert (process.values["pid"], process.values["memory_used_bytes"]) == (99, None)


def test_a_process_has_its_pod_where_the_agent_sees_the_hosts_processes(proc: Path, open_source: OpenSource) -> None:
    uid, container = "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d", "ab" * 32
    group = f"0::/../../kubepods-pod{uid.replace('-', '_')}.slice/cri-containerd-{container}.scope\n"
    plant_view(plant(proc, {"4711/cgroup": group}), 50, of_host=True)
    source = open_source(NvmlProcesses, proc=proc, open_nvml=load("busy").open)
    _, process = source.read(instant(0))
    assert (process.values["pod_uid"], process.values["container_id"]) == (uid, container)


def sample(pid: int, micros: int, sm: int, memory: int = 0) -> dict[str, int]:
    return {"pid": pid, "timeStamp": micros, "smUtil": sm, "memUtil": memory, "encUtil": 0, "decUtil": 0}


def recording(utilization: dict[int, dict[str, Any]], *pids: int) -> NvmlRecording:
    """Return a GPU with processes, and what the driver reports of their use, by the time stamp of the question."""
    running = {"answer": [{"pid": pid, "usedGpuMemory": 1000} for pid in pids]}
    outcomes = {f"nvmlDeviceGetProcessUtilization({FIRST}, {last})": [answer] for last, answer in utilization.items()}
    return NvmlRecording.of_one_gpu({RUNNING: [running], **outcomes})


def read(source: NvmlProcesses, seconds: float) -> dict[Value, Value]:
    """Return the utilisation of each process."""
    rows = [reading.values for reading in source.read(instant(seconds)) if reading.table == "gpu_process_samples"]
    return {row["pid"]: row["utilization_percent"] for row in rows}


def test_only_samples_newer_than_the_last_are_requested(host: Path, open_source: OpenSource) -> None:
    used: dict[int, dict[str, Any]] = {
        0: {"answer": [sample(1, 1000, 40, 20), sample(2, 1100, 60)]},
        1100: {"answer": [sample(1, 2000, 90)]},
    }
    source = open_source(NvmlProcesses, proc=host, open_nvml=recording(used, 1, 2).open)
    _, first, _ = source.read(instant(0))
    assert (first.values["utilization_percent"], first.values["memory_utilization_percent"]) == (40.0, 20.0)
    # The driver leaves out idle processes.
    assert read(source, 5) == {1: 90.0, 2: 0.0}


def test_utilization_is_read_every_5_s_and_absent_in_between(host: Path, open_source: OpenSource) -> None:
    used: dict[int, dict[str, Any]] = {0: {"answer": [sample(1, 1000, 40)]}, 1000: NOTHING_NEW}
    source = open_source(NvmlProcesses, proc=host, open_nvml=recording(used, 1).open)
    assert read(source, 0) == {1: 40.0}
    assert read(source, 1) == {1: None}
    assert read(source, 4.9) == {1: None}
    assert read(source, 5) == {1: 0.0}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(NOTHING_NEW, 0.0), ({"error": 999, "words": "Unknown Error"}, None)],
    ids=["without recent work", "a call that fails costs only its own columns"],
)
def test_utilization_is_0_or_absent(
    host: Path, answer: dict[str, Any], expected: float | None, open_source: OpenSource
) -> None:
    source = open_source(NvmlProcesses, proc=host, open_nvml=recording({0: answer}, 1).open)
    assert read(source, 0) == {1: expected}


def test_the_newest_sample_counts_and_invalid_ones_do_not(host: Path, open_source: OpenSource) -> None:
    used = {0: {"answer": [sample(1, 3000, 70), sample(1, 2000, 10), sample(9_999_999, 9000, 4_294_967_295)]}}
    replayed = recording(used, 1)
    source = open_source(NvmlProcesses, proc=host, open_nvml=replayed.open)
    assert read(source, 0) == {1: 70.0}
    replayed.outcomes[f"nvmlDeviceGetProcessUtilization({FIRST}, 3000)"] = [{"answer": [sample(1, 3000, 70)]}]
    assert read(source, 5) == {1: 0.0}


def test_unsupported_utilization_is_asked_once_and_absent(host: Path, open_source: OpenSource) -> None:
    replayed = recording({0: NOT_SUPPORTED}, 1)
    source = open_source(NvmlProcesses, proc=host, open_nvml=replayed.open)
    assert read(source, 0) == read(source, 5) == {1: None}
    assert replayed.calls[f"nvmlDeviceGetProcessUtilization({FIRST}, 0)"] == 1


def test_a_gpu_that_is_lost_meanwhile_is_a_failure(host: Path, open_source: OpenSource) -> None:
    lost = recording({0: {"error": 15, "words": "GPU is lost"}}, 1)
    source = open_source(NvmlProcesses, proc=host, open_nvml=lost.open)
    with pytest.raises(SourceError, match="GPU is lost"):
        list(source.read(instant(0)))


@pytest.mark.parametrize(
    ("view", "of_host", "numbers", "expected"),
    [((7,), False, (720,), (720, None)), ((900, 7), True, (645_400, 720), (645_400, 40.0))],
    ids=["its own proc", "the host's proc"],
)
def test_in_a_container_use_by_the_hosts_number_needs_the_hosts_proc(
    tmp_path: Path,
    view: tuple[int, ...],
    of_host: bool,
    numbers: tuple[int, ...],
    expected: tuple[int, float | None],
    open_source: OpenSource,
) -> None:
    plant_view(tmp_path, *view, of_host=of_host)
    plant_process(tmp_path, 700)
    plant_process(tmp_path, *numbers, parent=700, uses_cuda=True)
    used = {0: {"answer": [sample(645_400, 1000, 40)]}}
    source = open_source(NvmlProcesses, proc=tmp_path, open_nvml=recording(used, 720).open, runs=Runs(("run", 700)))
    (reading,) = source.read(instant(0))
    assert reading.values["run_id"] == "run"
    assert (reading.values["pid"], reading.values["utilization_percent"]) == expected
