"""The sources and facts on answers that a real H200 gave (driver 580.159.04, scripts/record_nvml.py)."""

from gpuagent.facts import Surroundings, collect_device_facts, collect_node_facts
from gpuagent.sources.nvml import NvmlGpu
from gpuagent.sources.nvml_energy import NvmlEnergy
from gpuagent.sources.nvml_processes import NvmlProcesses
from gpuagent.sources.source import SourceContext
from tests.support.nvml_replay import NvmlRecording
from tests.support.trees import instant


def test_an_idle_h200_reads_idle() -> None:
    (reading,) = NvmlGpu(SourceContext(open_nvml=NvmlRecording.load("h200_idle").open)).read(instant(0))
    values = reading.values
    assert values["utilization_percent"] == 0
    assert values["memory_used_bytes"] == 0
    assert values["power_kind"] == "instant"
    assert isinstance(values["power_watts"], float)
    assert 50 < values["power_watts"] < 150
    assert None not in values.values()


def test_an_h200_beside_training_reads_busy_and_names_the_process() -> None:
    context = SourceContext(open_nvml=NvmlRecording.load("h200_busy").open)
    (reading,) = NvmlGpu(context).read(instant(0))
    assert isinstance(reading.values["memory_used_bytes"], int)
    assert reading.values["memory_used_bytes"] > 900_000_000
    assert reading.values["sm_clock_mhz"] == 1980
    rows = {row.table: row.values for row in NvmlProcesses(context).read(instant(0))}
    assert rows["gpu_samples"]["process_count"] == 1
    assert rows["gpu_process_samples"]["memory_used_bytes"] == 950_009_856
    (energy,) = NvmlEnergy(context).read(instant(0))
    assert isinstance(energy.values["energy_joules"], float)


def test_the_facts_of_an_h200() -> None:
    surroundings = Surroundings(open_nvml=NvmlRecording.load("h200_idle").open)
    (device,) = collect_device_facts(surroundings)
    assert (device.name, device.compute_capability, device.power_limit_watts) == ("NVIDIA H200", "9.0", 700)
    assert (device.cuda_cores, device.sm_clock_max_mhz) == (16_896, 1980)
    node = collect_node_facts(surroundings)
    assert (node.gpu_count, node.driver_version, node.cuda_driver_version) == (1, "580.159.04", "13.0")
