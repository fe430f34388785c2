"""The GPUs, their driver, and the firmware of the node and its GPUs, read once."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, TypeVar

from gpuagent.facts.surroundings import Surroundings
from gpuagent.sources.host import read_memory
from gpuagent.sources.nvml import shares_memory
from gpuagent.sources.support.nvml_api import Nvml, NvmlError
from gpuagent_common.keys import key
from gpuagent_common.ranges import find_impossible

T = TypeVar("T")

_CLOCK_SM, _CLOCK_MEMORY = 1, 2

# NVML_DEVICE_ARCH_… of nvml.h.
_ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFacts:
    """The driver of the GPUs that the agent can see; a count of None: a driver exists, but does not answer."""

    gpu_count: int | None = None
    driver_version: str | None = None
    cuda_driver_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """One GPU or MIG instance, as in the table session_devices; None where the driver does not report the value."""

    device_id: int
    uuid: str
    parent_device_id: int | None = None
    device_index: int | None
    name: str | None
    architecture: str | None
    compute_capability: str | None
    memory_total_bytes: int | None
    power_limit_watts: float | None
    sm_clock_max_mhz: float | None
    memory_clock_max_mhz: float | None
    cuda_cores: int | None
    pcie_generation_max: int | None
    pcie_width_max: int | None
    pcie_generation: int | None
    pcie_width: int | None
    pci_bus_id: str | None
    mig_mode: int | None
    ecc_mode: int | None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    gpu_slices: int | None = None
    compute_slices: int | None = None
    multiprocessors: int | None = None


def collect_driver_facts(surroundings: Surroundings) -> DriverFacts:
    """Return the driver's versions and the number of its GPUs."""
    try:
        with contextlib.closing(surroundings.open_nvml()) as nvml:
            return DriverFacts(
                gpu_count=_answer(lambda: len(nvml.devices())),
                driver_version=_answer(lambda: str(nvml.ask("nvmlSystemGetDriverVersion"))),
                cuda_driver_version=_answer(lambda: cuda_version(nvml.ask("nvmlSystemGetCudaDriverVersion_v2"))),
            )
    except NvmlError as error:
        return DriverFacts(gpu_count=0 if error.no_library else None)


def collect_device_facts(surroundings: Surroundings) -> list[DeviceFacts]:
    """Return the GPUs that the agent can see, each followed by its MIG instances; none where no driver answers."""
    devices: list[DeviceFacts] = []
    with contextlib.suppress(NvmlError), contextlib.closing(surroundings.open_nvml()) as nvml:
        for uuid in nvml.devices():
            ask = partial(_ask, nvml, uuid)
            gpu = DeviceFacts(
                device_id=key(uuid),
                uuid=uuid,
                device_index=ask("nvmlDeviceGetIndex", int),
                name=ask("nvmlDeviceGetName", str),
                architecture=ask("nvmlDeviceGetArchitecture", _ARCHITECTURES.get),
                compute_capability=ask(
                    "nvmlDeviceGetCudaComputeCapability", lambda version: ".".join(map(str, version))
                ),
                memory_total_bytes=ask("nvmlDeviceGetMemoryInfo", _total_bytes),
                power_limit_watts=ask("nvmlDeviceGetEnforcedPowerLimit", lambda milliwatts: float(milliwatts / 1000)),
                sm_clock_max_mhz=ask("nvmlDeviceGetMaxClockInfo", float, _CLOCK_SM),
                memory_clock_max_mhz=ask("nvmlDeviceGetMaxClockInfo", float, _CLOCK_MEMORY),
                cuda_cores=ask("nvmlDeviceGetNumGpuCores", int),
                pcie_generation_max=ask("nvmlDeviceGetMaxPcieLinkGeneration", int),
                pcie_width_max=ask("nvmlDeviceGetMaxPcieLinkWidth", int),
                pcie_generation=ask("nvmlDeviceGetCurrPcieLinkGeneration", int),
                pcie_width=ask("nvmlDeviceGetCurrPcieLinkWidth", int),
                pci_bus_id=ask("nvmlDeviceGetPciInfo", lambda pci: str(pci["busId"])),
                mig_mode=ask("nvmlDeviceGetMigMode", lambda modes: int(modes[0])),
                ecc_mode=ask("nvmlDeviceGetEccMode", lambda modes: int(modes[0])),
            )
            if shares_memory(nvml, uuid, surroundings.machine):
                memory = read_memory(surroundings.proc, surroundings.sys)
                gpu = replace(gpu, memory_total_bytes=memory.get("MemTotal"))
            instances = _answer(lambda: nvml.instances(uuid)) or ()  # noqa: B023 - called at once
            devices += [gpu, *(_read_instance(nvml, instance, gpu) for instance in instances)]
    return [_drop_impossible(device) for device in devices]


def _drop_impossible(device: DeviceFacts) -> DeviceFacts:
    """Return the facts without those that the driver reports as the largest number, which stands for none."""
    absent: dict[str, Any] = {column: None for column, _ in find_impossible("session_devices", asdict(device))}
    return replace(device, **absent)


def cuda_version(number: int) -> str:
    """Return CUDA's version as people write it: 13.0 for 13000."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _answer(ask: Callable[[], T]) -> T | None:
    try:
        return ask()
    except NvmlError:
        return None


def _ask(nvml: Nvml, uuid: str, function: str, convert: Callable[[Any], T], *arguments: int) -> T | None:
    return _answer(lambda: convert(nvml.ask(function, uuid, *arguments)))


def _read_instance(nvml: Nvml, uuid: str, gpu: DeviceFacts) -> DeviceFacts:
    """Return the instance's own facts; chip and link are the GPU's, and its power limit has no parts."""
    ask = partial(_ask, nvml, uuid)
    attributes = ask("nvmlDeviceGetAttributes", dict[str, int]) or {}
    return replace(
        gpu,
        device_id=key(uuid),
        uuid=uuid,
        parent_device_id=gpu.device_id,
        device_index=ask("nvmlDeviceGetIndex", int),
        name=ask("nvmlDeviceGetName", str),
        memory_total_bytes=ask("nvmlDeviceGetMemoryInfo", _total_bytes),
        power_limit_watts=None,
        cuda_cores=None,
        mig_mode=None,
        gpu_instance_id=ask("nvmlDeviceGetGpuInstanceId", int),
        compute_instance_id=ask("nvmlDeviceGetComputeInstanceId", int),
        gpu_slices=attributes.get("gpuInstanceSliceCount"),
        compute_slices=attributes.get("computeInstanceSliceCount"),
        multiprocessors=attributes.get("multiprocessorCount"),
    )


def _total_bytes(memory: Mapping[str, int]) -> int:
    return memory["total"]


# Name → NVML's function.
_OF_GPUS = {"vbios": "nvmlDeviceGetVbiosVersion", "gsp": "nvmlDeviceGetGspFirmwareVersion"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Firmware:
    """One firmware, as in the table session_firmware; device_id is None for the node's own."""

    device_id: int | None
    name: str
    version: str


def collect_firmware(surroundings: Surroundings) -> Iterator[Firmware]:
    """Yield the firmware that the node and its GPUs report; nothing is raised."""
    if bios := " ".join(filter(None, (surroundings.dmi("bios_vendor"), surroundings.dmi("bios_version")))):
        yield Firmware(device_id=None, name="bios", version=bios)
    with contextlib.suppress(NvmlError), contextlib.closing(surroundings.open_nvml()) as nvml:
        for uuid in nvml.devices():
            for name, function in _OF_GPUS.items():
                # A GPU whose firmware does not run on it reports none.
                with contextlib.suppress(NvmlError):
                    yield Firmware(device_id=key(uuid), name=name, version=str(nvml.ask(function, uuid)))
