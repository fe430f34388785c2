from typing import Any

import pytest

from gpuagent.facts import DeviceFacts, Surroundings, collect_device_facts, collect_node_facts
from gpuagent.facts.gpus import cuda_version
from gpuagent_common.keys import key
from tests.support.nvml_replay import FIRST, SECOND, NvmlRecording

PCIE: dict[str, Any] = {"pcie_generation_max": 5, "pcie_width_max": 16, "pcie_generation": 5, "pcie_width": 16}
SMALL = "MIG-66666666-cccc-5ccc-8ccc-666666666666"


def surroundings(recording: NvmlRecording) -> Surroundings:
    return Surroundings(open_nvml=recording.open)


def test_a_gpu_has_every_column() -> None:
    recording = NvmlRecording.load("idle")
    assert collect_device_facts(surroundings(recording)) == [
        DeviceFacts(
            device_id=key(FIRST),
            uuid=FIRST,
            device_index=0,
            name="NVIDIA H200",
            architecture="Hopper",
            compute_capability="9.0",
            memory_total_bytes=150_754_820_096,
            power_limit_watts=700.0,
            sm_clock_max_mhz=1980.0,
            memory_clock_max_mhz=3201.0,
            cuda_cores=16896,
            **PCIE,
            pci_bus_id="00000000:00:00.0",
            mig_mode=0,
            ecc_mode=1,
        )
    ]
    assert recording.open_sessions == 0


def test_mig_instances_follow_their_gpu_and_have_memory_and_slices_of_their_own() -> None:
    recording = NvmlRecording.load("mig")
    gpu, big, small = collect_device_facts(surroundings(recording))
    assert (gpu.mig_mode, gpu.parent_device_id, gpu.gpu_slices) == (1, None, None)
    assert small == DeviceFacts(
        device_id=key(SMALL),
        uuid=SMALL,
        parent_device_id=gpu.device_id,
        device_index=1,
        name="NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        architecture="Hopper",
        compute_capability="9.0",
        memory_total_bytes=10_468_982_784,
        power_limit_watts=None,
        sm_clock_max_mhz=1980.0,
        memory_clock_max_mhz=2619.0,
        cuda_cores=None,
        **PCIE,
        pci_bus_id="00000000:06:00.0",
        mig_mode=None,
        ecc_mode=1,
        gpu_instance_id=9,
        compute_instance_id=0,
        gpu_slices=1,
        compute_slices=1,
        multiprocessors=16,
    )
    assert (big.device_index, big.gpu_slices, big.parent_device_id) == (0, 3, gpu.device_id)
    assert collect_node_facts(surroundings(recording)).gpu_count == 1
    assert recording.open_sessions == 0


def test_missing_facts_of_an_old_gpu_are_absent() -> None:
    (device,) = collect_device_facts(surroundings(NvmlRecording.load("old_gpu")))
    assert (device.name, device.architecture, device.compute_capability) == ("Tesla P100-SXM2-16GB", "Pascal", "6.0")
    assert (device.mig_mode, device.ecc_mode, device.cuda_cores) == (None, None, None)


def test_two_gpus_keep_nvmls_order_and_their_node_has_the_drivers_versions() -> None:
    recording = NvmlRecording.load("two_gpus")
    devices = collect_device_facts(surroundings(recording))
    assert [(device.uuid, device.device_index) for device in devices] == [(FIRST, 0), (SECOND, 1)]
    facts = collect_node_facts(surroundings(recording))
    assert (facts.gpu_count, facts.driver_version, facts.cuda_driver_version) == (2, "580.159.04", "13.0")
    assert recording.open_sessions == 0


@pytest.mark.parametrize(("code", "count"), [(12, 0), (9, None), (18, None)])
def test_without_a_driver_there_are_no_gpus_and_a_broken_one_counts_none(code: int, count: int | None) -> None:
    broken = surroundings(NvmlRecording({"open()": [{"error": code, "words": "no"}]}))
    assert collect_node_facts(broken).gpu_count == count
    assert collect_device_facts(broken) == []


def test_cuda_versions_have_a_dot() -> None:
    assert [cuda_version(number) for number in (13000, 12040, 11080)] == ["13.0", "12.4", "11.8"]


def test_a_limit_that_is_the_largest_number_is_no_limit() -> None:
    recording = NvmlRecording.load("idle")
    recording.outcomes = {
        question: [{"answer": 2**32 - 1}] if "EnforcedPowerLimit" in question or "MaxClockInfo" in question else answers
        for question, answers in recording.outcomes.items()
    }
    (gpu,) = collect_device_facts(surroundings(recording))
    assert (gpu.power_limit_watts, gpu.sm_clock_max_mhz, gpu.memory_clock_max_mhz) == (None, None, None)
    assert gpu.cuda_cores == 16896
