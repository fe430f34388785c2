"""The recorder, on a recording: what it writes replays as the first did."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from gpuagent.facts import DeviceFacts, Surroundings, collect_device_facts
from gpuagent.sources.nvml import NvmlGpu
from gpuagent.sources.source import SourceContext, Value
from tests.support.nvml_replay import NvmlRecording
from tests.support.trees import instant

SCRIPT = Path(__file__).parents[3] / "scripts/record_nvml.py"


@pytest.fixture
def recorder() -> ModuleType:
    specification = importlib.util.spec_from_file_location("record_nvml", SCRIPT)
    assert specification
    assert specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def look(recording: NvmlRecording) -> tuple[list[DeviceFacts], list[dict[str, Value]]]:
    """Return what the facts and a source make of it, without what identifies the node."""
    devices = collect_device_facts(Surroundings(open_nvml=recording.open))
    source = NvmlGpu(SourceContext(open_nvml=recording.open))
    rows = [{**reading.values, "device_id": None} for reading in source.read(instant(0))]
    source.close()
    return devices, rows


def test_a_recorded_mig_gpu_replays_under_other_uuids(
    recorder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "open_nvml", NvmlRecording.load("mig").open)
    monkeypatch.setattr(recorder, "TICK_SECONDS", 0.001)
    file = tmp_path / "recorded.json"
    recorder.main(file, 0.003)
    again, first = look(NvmlRecording.load(str(file.with_suffix("")))), look(NvmlRecording.load("mig"))
    assert [device.name for device in again[0]] == [device.name for device in first[0]]
    assert [device.gpu_slices for device in again[0]] == [None, 3, 1]
    assert again[1] == first[1]
    assert not {device.uuid for device in again[0]} & {device.uuid for device in first[0]}
