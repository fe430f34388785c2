"""The firmware of the node and its GPUs, read once: a change of it changes figures without any new software."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from gpuagent.facts.surroundings import Surroundings
from gpuagent.sources.support.nvml_api import NvmlError
from gpuagent_common.keys import key

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
