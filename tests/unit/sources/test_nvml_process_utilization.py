"""How busy each process keeps a GPU."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuagent.errors import SourceError
from gpuagent.sources.nvml_processes import NvmlProcesses
from gpuagent.sources.source import SourceContext, Value
from tests.support.nvml_replay import NOT_SUPPORTED, NvmlRecording
from tests.support.pid_namespaces import plant_process, plant_view
from tests.support.trees import instant

GPU = "GPU-11111111-aaaa-4aaa-8aaa-111111111111"
NOTHING_NEW = {"error": 6, "words": "Not Found"}


class OneRun:
    def processes(self) -> Sequence[tuple[str, int]]:
        return (("run", 700),)


def sample(pid: int, micros: int, sm: int, memory: int = 0) -> dict[str, int]:
    return {"pid": pid, "timeStamp": micros, "smUtil": sm, "memUtil": memory, "encUtil": 0, "decUtil": 0}


def recording(utilization: dict[int, dict[str, Any]], *pids: int) -> NvmlRecording:
    """Return a GPU with processes, and what the driver says of their use, by the time stamp that it is asked from."""
    return NvmlRecording(
        {
            "open()": [{"answer": None}],
            "devices()": [{"answer": [GPU]}],
            f"nvmlDeviceGetComputeRunningProcesses_v3({GPU})": [
                {"answer": [{"pid": pid, "usedGpuMemory": 1000} for pid in pids]}
            ],
            **{f"nvmlDeviceGetProcessUtilization({GPU}, {last})": [answer] for last, answer in utilization.items()},
        }
    )


def read(source: NvmlProcesses, seconds: float) -> dict[Value, Value]:
    """Return the utilisation of each process."""
    rows = [reading.values for reading in source.read(instant(seconds)) if reading.table == "gpu_process_samples"]
    return {row["pid"]: row["utilization_percent"] for row in rows}


@pytest.fixture
def host(tmp_path: Path) -> Path:
    return plant_view(tmp_path, 50, of_host=True)


def test_the_driver_is_asked_for_what_is_newer_than_the_last_it_told(host: Path) -> None:
    told: dict[int, dict[str, Any]] = {
        0: {"answer": [sample(1, 1000, 40, 20), sample(2, 1100, 60)]},
        1100: {"answer": [sample(1, 2000, 90)]},
    }
    source = NvmlProcesses(SourceContext(proc=host, open_nvml=recording(told, 1, 2).open))
    _, first, _ = source.read(instant(0))
    assert (first.values["utilization_percent"], first.values["memory_utilization_percent"]) == (40.0, 20.0)
    # The driver leaves out who did nothing.
    assert read(source, 5) == {1: 90.0, 2: 0.0}
    source.close()


def test_the_driver_is_asked_seldom_and_meanwhile_the_use_is_absent(host: Path) -> None:
    told: dict[int, dict[str, Any]] = {0: {"answer": [sample(1, 1000, 40)]}, 1000: NOTHING_NEW}
    source = NvmlProcesses(SourceContext(proc=host, open_nvml=recording(told, 1).open))
    assert read(source, 0) == {1: 40.0}
    assert read(source, 1) == {1: None}
    assert read(source, 4.9) == {1: None}
    assert read(source, 5) == {1: 0.0}
    source.close()


def test_a_gpu_on_which_nothing_ran_lately_is_idle_at_once(host: Path) -> None:
    source = NvmlProcesses(SourceContext(proc=host, open_nvml=recording({0: NOTHING_NEW}, 1).open))
    assert read(source, 0) == {1: 0.0}
    source.close()


def test_the_newest_of_several_samples_counts_and_those_that_are_none_do_not(host: Path) -> None:
    told = {0: {"answer": [sample(1, 3000, 70), sample(1, 2000, 10), sample(9_999_999, 9000, 4_294_967_295)]}}
    replayed = recording(told, 1)
    source = NvmlProcesses(SourceContext(proc=host, open_nvml=replayed.open))
    assert read(source, 0) == {1: 70.0}
    replayed.outcomes[f"nvmlDeviceGetProcessUtilization({GPU}, 3000)"] = [{"answer": [sample(1, 3000, 70)]}]
    assert read(source, 5) == {1: 0.0}
    source.close()


def test_what_is_not_supported_is_asked_once_and_absent(host: Path) -> None:
    replayed = recording({0: NOT_SUPPORTED}, 1)
    source = NvmlProcesses(SourceContext(proc=host, open_nvml=replayed.open))
    assert read(source, 0) == read(source, 5) == {1: None}
    assert replayed.calls[f"nvmlDeviceGetProcessUtilization({GPU}, 0)"] == 1
    source.close()


def test_a_call_that_fails_costs_only_its_own_columns(host: Path) -> None:
    source = NvmlProcesses(
        SourceContext(proc=host, open_nvml=recording({0: {"error": 999, "words": "Unknown Error"}}, 1).open)
    )
    assert read(source, 0) == {1: None}
    source.close()


def test_a_gpu_that_is_lost_meanwhile_is_said_to_be(host: Path) -> None:
    source = NvmlProcesses(
        SourceContext(proc=host, open_nvml=recording({0: {"error": 15, "words": "GPU is lost"}}, 1).open)
    )
    with pytest.raises(SourceError, match="GPU is lost"):
        list(source.read(instant(0)))
    source.close()


def test_in_a_container_use_by_the_hosts_number_is_nobodys_and_never_0(tmp_path: Path) -> None:
    plant_view(tmp_path, 7, of_host=False)
    plant_process(tmp_path, 700)
    plant_process(tmp_path, 720, parent=700, uses_cuda=True)
    told = {0: {"answer": [sample(645_400, 1000, 40)]}}
    source = NvmlProcesses(SourceContext(proc=tmp_path, open_nvml=recording(told, 720).open, runs=OneRun()))
    (reading,) = source.read(instant(0))
    assert (reading.values["run_id"], reading.values["utilization_percent"]) == ("run", None)
    source.close()


def test_with_the_hosts_proc_use_and_memory_of_a_containers_process_meet(tmp_path: Path) -> None:
    plant_view(tmp_path, 900, 7, of_host=True)
    plant_process(tmp_path, 700)
    plant_process(tmp_path, 645_400, 720, parent=700, uses_cuda=True)
    told = {0: {"answer": [sample(645_400, 1000, 40)]}}
    source = NvmlProcesses(SourceContext(proc=tmp_path, open_nvml=recording(told, 720).open, runs=OneRun()))
    (reading,) = source.read(instant(0))
    assert (reading.values["pid"], reading.values["run_id"]) == (645_400, "run")
    assert reading.values["utilization_percent"] == 40.0
    source.close()
