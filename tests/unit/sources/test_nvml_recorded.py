"""The sources and facts on answers of a real H200 (driver 580.159.04), and their recorder."""

from itertools import pairwise
from pathlib import Path

import pytest

from gpuagent.clock import Instant
from gpuagent.facts import DeviceFacts, Surroundings, collect_device_facts, collect_node_facts
from gpuagent.sources.nvml import NvmlEnergy, NvmlGpu, NvmlPower
from gpuagent.sources.nvml_gpm import NvmlGpm
from gpuagent.sources.nvml_processes import NvmlProcesses
from gpuagent.sources.source import SourceContext, Value
from tests.support import record_nvml
from tests.support.nvml_replay import NvmlRecording
from tests.support.pid_namespaces import plant_view
from tests.support.sources import replay
from tests.support.trees import instant


def test_an_idle_h200_reads_idle() -> None:
    (reading,) = replay(NvmlGpu, "h200_idle")[0].read(instant(0))
    values = reading.values
    assert values["utilization_percent"] == 0
    assert values["memory_used_bytes"] == 0
    assert values["power_kind"] == "instant"
    assert isinstance(values["power_watts"], float)
    assert 50 < values["power_watts"] < 150
    assert None not in values.values()


def test_an_h200_beside_training_reads_busy_and_names_the_process(tmp_path: Path) -> None:
    context = SourceContext(proc=plant_view(tmp_path, 1, of_host=True), open_nvml=NvmlRecording.load("h200_busy").open)
    (reading,) = NvmlGpu(context).read(instant(0))
    assert isinstance(reading.values["memory_used_bytes"], int)
    assert reading.values["memory_used_bytes"] > 900_000_000
    assert reading.values["sm_clock_mhz"] == 1980
    rows = {row.table: row.values for row in NvmlProcesses(context).read(instant(0))}
    assert rows["gpu_samples"]["process_count"] == 1
    assert rows["gpu_process_samples"]["memory_used_bytes"] == 2_164_260_864
    # The driver's first answer is of an unknown time, and the recording has no other.
    assert rows["gpu_process_samples"]["utilization_percent"] is None
    (energy,) = NvmlEnergy(context).read(instant(0))
    assert isinstance(energy.values["energy_joules"], float)


def test_the_facts_of_an_h200() -> None:
    surroundings = Surroundings(open_nvml=NvmlRecording.load("h200_idle").open)
    (device,) = collect_device_facts(surroundings)
    assert (device.name, device.compute_capability, device.power_limit_watts) == ("NVIDIA H200", "9.0", 700)
    assert (device.cuda_cores, device.sm_clock_max_mhz) == (16_896, 1980)
    node = collect_node_facts(surroundings)
    assert (node.gpu_count, node.driver_version, node.cuda_driver_version) == (1, "580.159.04", "13.0")


def test_training_in_bf16_uses_the_tensor_pipe_of_its_gpu() -> None:
    source, _ = replay(NvmlGpm, "h200_one_of_two_busy")
    # The first reading has nothing to be compared with.
    assert list(source.read(instant(0))) == []
    idle, busy = [row.values for tick in range(1, 6) for row in source.read(instant(tick))][-2:]
    assert idle["sm_active_percent"] == 0
    assert busy["sm_active_percent"] == pytest.approx(75.3, abs=0.1)
    assert busy["tensor_active_percent"] == pytest.approx(15.6, abs=0.1)
    assert busy["tensor_half_active_percent"] == pytest.approx(15.6, abs=0.1)
    assert busy["dram_active_percent"] == pytest.approx(20.9, abs=0.1)
    assert busy["tensor_fp64_active_percent"] == 0


def test_an_h200_samples_power_every_20_ms_in_unix_time() -> None:
    source, _ = replay(NvmlPower, "h200_one_of_two_busy")
    recorded_at = Instant(unix_nano=1_795_273_053_000_000_000, monotonic_nano=0)
    rows = [row.values for row in source.read(recorded_at)]
    busy = [row for row in rows if row["device_id"] == rows[-1]["device_id"]]
    times_nano = [row["time"] for row in busy]
    assert all(isinstance(time_nano, int) for time_nano in times_nano)
    gaps_ms = [(after - before) / 1e6 for before, after in pairwise(times_nano)]  # type: ignore[operator]
    assert all(15 < gap_ms < 25 for gap_ms in gaps_ms)
    assert all(300 < row["power_watts"] < 600 for row in busy)  # type: ignore[operator]


def look(name: str) -> tuple[list[DeviceFacts], list[dict[str, Value]]]:
    """Return what the facts and a source make of it, without what identifies the node."""
    source, recording = replay(NvmlGpu, name)
    devices = collect_device_facts(Surroundings(open_nvml=recording.open))
    rows = [{**reading.values, "device_id": None} for reading in source.read(instant(0))]
    source.close()
    return devices, rows


def test_a_recorded_mig_gpu_replays_under_other_uuids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_nvml, "open_nvml", NvmlRecording.load("mig").open)
    monkeypatch.setattr(record_nvml, "TICK_SECONDS", 0.001)
    file = tmp_path / "recorded.json"
    record_nvml.main(file, 0.003)
    (devices, rows), (recorded_devices, recorded_rows) = look(str(file.with_suffix(""))), look("mig")
    assert [device.name for device in devices] == [device.name for device in recorded_devices]
    assert [device.gpu_slices for device in devices] == [None, 3, 1]
    assert rows == recorded_rows
    assert not {device.uuid for device in devices} & {device.uuid for device in recorded_devices}


def test_readings_after_the_first_are_recorded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_nvml, "open_nvml", NvmlRecording.load("h200_busy").open)
    monkeypatch.setattr(record_nvml, "TICK_SECONDS", 0.001)
    file = tmp_path / "recorded.json"
    record_nvml.main(file, 0.3)  # three ticks of the fastest sources
    assert look(str(file.with_suffix("")))[1] == look("h200_busy")[1]
