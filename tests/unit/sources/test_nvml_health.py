"""Wear of GPUs of several ages."""

from typing import Any

from gpuagent.sources.nvml_health import NvmlHealth
from gpuagent_common.keys import key
from tests.support.nvml_replay import ANY, FIRST, NOT_SUPPORTED, NvmlRecording
from tests.support.sources import OpenSource
from tests.support.trees import instant


def recording(**answers: Any) -> NvmlRecording:
    """Return a node with one GPU, which answers the functions nvmlDeviceGet… with these names."""
    outcomes = {f"nvmlDeviceGet{name}({FIRST})": [{"answer": answer}] for name, answer in answers.items()}
    return NvmlRecording.of_one_gpu({ANY: [NOT_SUPPORTED], **outcomes})


def test_a_gpu_that_remaps_rows_has_counts_and_pending_repairs(open_source: OpenSource) -> None:
    replayed = recording(RemappedRows=[3, 1, 1, 0], CurrPcieLinkGeneration=5, CurrPcieLinkWidth=16)
    source = open_source(NvmlHealth, open_nvml=replayed.open)
    (reading,) = source.read(instant(0))
    assert (reading.table, reading.key) == ("gpu_health_samples", key(FIRST))
    assert reading.values == {
        "device_id": key(FIRST),
        "remapped_rows_correctable": 3,
        "remapped_rows_uncorrectable": 1,
        "memory_repair_pending": 1,
        "memory_repair_failed": 0,
        "pcie_generation": 5,
        "pcie_width": 16,
    }
    source.close()
    assert replayed.open_sessions == 0


def test_a_gpu_before_ampere_has_retired_pages(open_source: OpenSource) -> None:
    replayed = recording(RetiredPagesPendingStatus=0, CurrPcieLinkWidth=8)
    for cause, pages in ((0, [4096, 8192]), (1, [65536])):
        replayed.outcomes[f"nvmlDeviceGetRetiredPages({FIRST}, {cause})"] = [{"answer": pages}]
    source = open_source(NvmlHealth, open_nvml=replayed.open)
    (first,), (second,) = list(source.read(instant(0))), list(source.read(instant(10)))
    expected = {"device_id": key(FIRST), "retired_pages": 3, "memory_repair_pending": 0, "pcie_width": 8}
    assert first.values == second.values == expected
    assert replayed.calls[f"nvmlDeviceGetRemappedRows({FIRST})"] == 1


def test_a_gpu_without_answers_has_no_row(open_source: OpenSource) -> None:
    source = open_source(NvmlHealth, open_nvml=recording().open)
    assert list(source.read(instant(0))) == []
