"""What wears out in GPUs of several ages."""

from typing import Any

import pytest

from gpuagent.errors import SourceError
from gpuagent.sources.nvml_health import NvmlHealth
from gpuagent.sources.source import SourceContext
from gpuagent_common.keys import key
from tests.support.nvml_replay import NvmlRecording
from tests.support.trees import instant

UUID = "GPU-11111111-aaaa-4aaa-8aaa-111111111111"
NOT_SUPPORTED = [{"error": 3, "words": "Not Supported"}]


def recording(**functions: list[dict[str, Any]]) -> NvmlRecording:
    """Return a node with one GPU; each question is answered as given, or not supported."""
    calls = {
        "remapped_rows": f"nvmlDeviceGetRemappedRows({UUID})",
        "retired_single": f"nvmlDeviceGetRetiredPages({UUID}, 0)",
        "retired_double": f"nvmlDeviceGetRetiredPages({UUID}, 1)",
        "retired_pending": f"nvmlDeviceGetRetiredPagesPendingStatus({UUID})",
        "pcie_generation": f"nvmlDeviceGetCurrPcieLinkGeneration({UUID})",
        "pcie_width": f"nvmlDeviceGetCurrPcieLinkWidth({UUID})",
    }
    outcomes = {call: functions.get(name, NOT_SUPPORTED) for name, call in calls.items()}
    return NvmlRecording({"open()": [{"answer": None}], "devices()": [{"answer": [UUID]}], **outcomes})


def test_a_gpu_that_remaps_rows_tells_how_many_and_whether_one_waits() -> None:
    replayed = recording(
        remapped_rows=[{"answer": [3, 1, 1, 0]}], pcie_generation=[{"answer": 5}], pcie_width=[{"answer": 16}]
    )
    source = NvmlHealth(SourceContext(open_nvml=replayed.open))
    (reading,) = source.read(instant(0))
    assert (reading.table, reading.key) == ("gpu_health_samples", key(UUID))
    assert reading.values == {
        "device_id": key(UUID),
        "remapped_rows_correctable": 3,
        "remapped_rows_uncorrectable": 1,
        "memory_repair_pending": 1,
        "memory_repair_failed": 0,
        "pcie_generation": 5,
        "pcie_width": 16,
    }
    source.close()
    assert replayed.open_sessions == 0


def test_a_gpu_before_ampere_tells_of_retired_pages_and_is_asked_for_rows_once() -> None:
    replayed = recording(
        retired_single=[{"answer": [4096, 8192]}],
        retired_double=[{"answer": [65536]}],
        retired_pending=[{"answer": 0}],
        pcie_width=[{"answer": 8}],
    )
    source = NvmlHealth(SourceContext(open_nvml=replayed.open))
    (first,), (second,) = list(source.read(instant(0))), list(source.read(instant(10)))
    expected = {"device_id": key(UUID), "retired_pages": 3, "memory_repair_pending": 0, "pcie_width": 8}
    assert first.values == second.values == expected
    assert replayed.calls[f"nvmlDeviceGetRemappedRows({UUID})"] == 1
    source.close()


def test_a_gpu_that_tells_nothing_has_no_row() -> None:
    source = NvmlHealth(SourceContext(open_nvml=recording().open))
    assert list(source.read(instant(0))) == []
    source.close()


def test_a_lost_gpu_is_a_failure() -> None:
    replayed = recording(remapped_rows=[{"error": 15, "words": "GPU is lost"}])
    source = NvmlHealth(SourceContext(open_nvml=replayed.open))
    with pytest.raises(SourceError, match="GPU is lost"):
        list(source.read(instant(0)))
    source.close()
