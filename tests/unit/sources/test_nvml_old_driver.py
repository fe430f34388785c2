"""The V100s of POWER9, whose drivers lack most of what NVML has today: absent, and never a failure."""

from pathlib import Path

import pytest

from gpuagent.facts import Firmware, Surroundings, collect_device_facts, collect_firmware
from gpuagent.sources import SOURCES, SourceType
from gpuagent.sources.source import SourceContext
from gpuagent_common.keys import key
from tests.support.nvml_replay import FIRST, NvmlRecording
from tests.support.pid_namespaces import plant_view
from tests.support.sources import read_all

GPU_SOURCES = [source for source in SOURCES if source.name.startswith("nvml")]

# Source → columns of its rows beside device_id.
EXPECTED = {
    "nvml": {
        *("utilization_percent", "memory_utilization_percent", "memory_used_bytes", "memory_total_bytes"),
        *("power_watts", "power_kind", "temperature_celsius", "sm_clock_mhz", "memory_clock_mhz"),
        *("throttle_reasons", "ecc_errors_uncorrected"),
    },
    "nvml_gpm": set(),
    "nvml_power": {"time", "power_watts"},
    "nvml_energy": {"energy_joules"},
    "nvml_processes": {
        *("process_count", "pid", "run_id", "pod_uid", "container_id", "memory_used_bytes"),
        *("utilization_percent", "memory_utilization_percent"),
    },
    "nvml_health": {"retired_pages", "memory_repair_pending", "pcie_generation", "pcie_width"},
    "nvml_events": set(),
}


@pytest.mark.parametrize("source_type", GPU_SOURCES, ids=lambda source: source.name)
def test_a_source_reads_what_the_driver_has_and_does_not_fail(source_type: SourceType, tmp_path: Path) -> None:
    recording = NvmlRecording.load("v100_power9")
    plant_view(tmp_path, 50, of_host=True)
    source = source_type(SourceContext(proc=tmp_path, open_nvml=recording.open))
    columns: set[str] = set()
    for second in range(3):
        readings, error = read_all(source, second)
        assert error is None
        columns |= {column for reading in readings for column in reading.values} - {"device_id"}
    source.close()
    assert columns == EXPECTED[source.name]


def test_the_facts_of_a_v100_are_those_that_its_driver_has(tmp_path: Path) -> None:
    given = Surroundings(root=tmp_path, proc=tmp_path, sys=tmp_path, open_nvml=NvmlRecording.load("v100_power9").open)
    (device,) = collect_device_facts(given)
    assert (device.name, device.compute_capability, device.power_limit_watts) == ("Tesla V100-SXM2-32GB", "7.0", 300.0)
    assert device.memory_total_bytes == 33_822_867_456
    assert {device.architecture, device.cuda_cores, device.mig_mode} == {None}
    assert list(collect_firmware(given)) == [Firmware(device_id=key(FIRST), name="vbios", version="88.00.80.00.01")]
