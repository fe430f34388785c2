"""A GPU in MIG mode: its instances are devices of their own, and nothing is counted twice."""

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pynvml
import pytest

from gpuagent.sources.nvml import NvmlEnergy, NvmlGpu, NvmlPower
from gpuagent.sources.nvml_gpm import METRICS, NvmlGpm
from gpuagent.sources.source import Source, SourceContext, Value
from gpuagent.sources.support.gpus import gpus_and_instances, parts, whole_gpus
from gpuagent.sources.support.nvml_api import Nvml, NvmlLostError, NvmlUnsupportedError, open_nvml
from gpuagent_common.keys import key
from tests.support.nvml_replay import NvmlRecording, fails
from tests.support.sources import replay
from tests.support.trees import instant

GPU = "GPU-66666666-aaaa-4aaa-8aaa-666666666666"
BIG = "MIG-66666666-bbbb-5bbb-8bbb-666666666666"
SMALL = "MIG-66666666-cccc-5ccc-8ccc-666666666666"
NO_PERMISSION = [{"error": 4, "words": "Insufficient Permissions"}]


def read(source_type: Callable[[SourceContext], Source], recording: NvmlRecording) -> dict[Value, dict[str, Value]]:
    """Return the rows of the second reading by device."""
    source, _ = replay(source_type, recording)
    list(source.read(instant(0)))
    rows = {reading.values["device_id"]: dict(reading.values) for reading in source.read(instant(1))}
    source.close()
    assert recording.open_sessions == 0
    return rows


def test_an_instance_has_memory_and_its_gpu_has_the_rest_once() -> None:
    rows = read(NvmlGpu, NvmlRecording.load("mig"))
    assert rows[key(SMALL)] == {
        "device_id": key(SMALL),
        "memory_used_bytes": 1_100_000_000,
        "memory_reserved_bytes": 20_000_000,
        "memory_total_bytes": 10_468_982_784,
    }
    assert set(rows) == {key(GPU), key(BIG), key(SMALL)}
    assert (rows[key(GPU)]["power_watts"], rows[key(GPU)]["temperature_celsius"]) == (248.9, 44.0)
    assert not [row for row in rows.values() if "utilization_percent" in row]
    assert [device for device, row in rows.items() if "power_watts" in row] == [key(GPU)]
    assert read(NvmlEnergy, NvmlRecording.load("mig")) == {key(GPU): {"device_id": key(GPU), "energy_joules": 74_350.0}}
    power, _ = replay(NvmlPower, "mig")
    assert {reading.values["device_id"] for reading in power.read(instant(0))} == {key(GPU)}


def test_counters_are_those_of_each_instance_and_not_of_the_divided_gpu() -> None:
    recording = NvmlRecording.load("mig")
    rows = read(NvmlGpm, recording)
    assert {device: row["sm_active_percent"] for device, row in rows.items()} == {key(BIG): 88.5, key(SMALL): 12.25}
    assert not any(call.startswith(f"gpm({GPU}") for call in recording.calls)


def test_a_container_with_one_instance_reads_that_alone() -> None:
    recording = NvmlRecording.load("mig")
    recording.outcomes[f"instances({GPU})"] = [{"answer": [SMALL]}]
    recording.outcomes |= {call: NO_PERMISSION for call in recording.outcomes if f"MemoryInfo({GPU}" in call}
    rows = read(NvmlGpu, recording)
    assert rows[key(SMALL)]["memory_used_bytes"] == 1_100_000_000
    assert "memory_used_bytes" not in rows[key(GPU)]
    assert rows[key(GPU)]["power_watts"] == 248.9


def test_sources_list_gpus_or_parts_or_both() -> None:
    nvml = NvmlRecording.load("mig").open()
    lists = {whole_gpus: [GPU], gpus_and_instances: [GPU, BIG, SMALL], parts: [BIG, SMALL]}
    assert {list_uuids: list(list_uuids(nvml)) for list_uuids in lists} == lists
    undivided = NvmlRecording.load("two_gpus").open()
    assert parts(undivided) == gpus_and_instances(undivided) == whole_gpus(undivided)


class DividedGpu:
    """A fake of pynvml with a GPU that has one MIG instance; a handle is a text."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sample, self.free = Mock(), Mock()
        self.allocate = Mock(side_effect=pynvml.c_nvmlGpmSample_t)
        self._monkeypatch = monkeypatch
        self.set(
            nvmlInit=lambda: None,
            nvmlShutdown=lambda: None,
            nvmlDeviceGetCount=lambda: 1,
            nvmlDeviceGetHandleByIndex=lambda _index: "gpu",
            nvmlDeviceGetHandleByUUID=lambda uuid: {GPU: "gpu", SMALL: "instance"}[uuid],
            nvmlDeviceGetUUID=lambda handle: {"gpu": GPU, "instance": SMALL}[handle],
            nvmlDeviceGetMaxMigDeviceCount=lambda _gpu: 7,
            nvmlDeviceGetMigDeviceHandleByIndex=self._instance_at,
            nvmlDeviceGetDeviceHandleFromMigDeviceHandle=lambda instance: {"instance": "gpu"}[instance],
            nvmlDeviceGetGpuInstanceId=lambda instance: {"instance": 9}[instance],
            nvmlGpmQueryDeviceSupport=self._support,
            nvmlGpmSampleAlloc=self.allocate,
            nvmlGpmSampleFree=self.free,
            nvmlGpmSampleGet=self.sample,
            nvmlGpmMigSampleGet=self.sample,
            nvmlGpmMetricsGet=lambda _request: None,
        )

    def set(self, **functions: Callable[..., Any]) -> None:
        for name, function in functions.items():
            self._monkeypatch.setattr(pynvml, name, function)

    @staticmethod
    def _instance_at(_gpu: object, index: int) -> str:
        if index != 2:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return "instance"

    @staticmethod
    def _support(handle: object) -> Any:
        assert handle == "gpu", "GPM takes handles of GPUs only"
        return pynvml.c_nvmlGpmSupport_t(isSupportedDevice=1)


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch) -> DividedGpu:
    return DividedGpu(monkeypatch)


@pytest.fixture
def nvml(divided: DividedGpu) -> Nvml:
    divided.allocate.assert_not_called()
    return open_nvml()


def test_instances_are_found_wherever_their_indices_are_and_none_without_mig(nvml: Nvml, divided: DividedGpu) -> None:
    assert nvml.devices() == [GPU]
    assert nvml.instances(GPU) == [SMALL]
    for code in (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND):
        divided.set(nvmlDeviceGetMaxMigDeviceCount=fails(code))
        assert list(nvml.instances(GPU)) == []


def test_an_instance_is_sampled_through_its_gpu(nvml: Nvml, divided: DividedGpu) -> None:
    assert nvml.gpm(SMALL, tuple(METRICS), 0) is None
    assert nvml.gpm(SMALL, tuple(METRICS), 10**9) is not None
    assert [call.args[:-1] for call in divided.sample.call_args_list] == [("gpu", 9), ("gpu", 9)]


@pytest.mark.parametrize("device", [GPU, SMALL])
def test_counters_from_before_a_loss_are_not_compared(nvml: Nvml, divided: DividedGpu, device: str) -> None:
    function = "nvmlGpmSampleGet" if device == GPU else "nvmlGpmMigSampleGet"
    working = getattr(pynvml, function)
    nvml.gpm(device, (2,), 0)
    divided.set(**{function: fails(pynvml.NVML_ERROR_GPU_IS_LOST)})
    with pytest.raises(NvmlLostError):
        nvml.gpm(device, (2,), 10**9)
    assert divided.free.call_count == divided.allocate.call_count
    divided.set(**{function: working})
    assert nvml.gpm(device, (2,), 2 * 10**9) is None
    assert nvml.gpm(device, (2,), 3 * 10**9) is not None
    nvml.close()
    assert divided.free.call_count == divided.allocate.call_count


def test_a_lost_gpu_is_looked_up_again(nvml: Nvml, divided: DividedGpu) -> None:
    handle = Mock(return_value="gpu")
    divided.set(nvmlDeviceGetHandleByUUID=handle)
    assert nvml.devices() == [GPU]
    divided.set(nvmlDeviceGetTemperature=fails(pynvml.NVML_ERROR_GPU_IS_LOST))
    with pytest.raises(NvmlLostError):
        nvml.ask("nvmlDeviceGetTemperature", GPU, 0)
    handle.assert_not_called()
    divided.set(nvmlDeviceGetTemperature=lambda *_arguments: 40)
    assert nvml.ask("nvmlDeviceGetTemperature", GPU, 0) == 40
    handle.assert_called_once_with(GPU)


def test_a_gpu_without_counters_is_unsupported(nvml: Nvml, divided: DividedGpu) -> None:
    divided.set(nvmlGpmQueryDeviceSupport=lambda _gpu: pynvml.c_nvmlGpmSupport_t(isSupportedDevice=0))
    with pytest.raises(NvmlUnsupportedError):
        nvml.gpm(SMALL, (2,), 0)
