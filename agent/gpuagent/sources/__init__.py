"""What is sampled: one file a source, listed here."""

import logging
from typing import Protocol

from gpuagent.errors import SourceUnavailableError
from gpuagent.sources.cgroup import Cgroup
from gpuagent.sources.dcgm import Dcgm
from gpuagent.sources.host_cpu import HostCpu
from gpuagent.sources.host_disk import HostDisk
from gpuagent.sources.host_energy import HostEnergy
from gpuagent.sources.host_frequency import HostFrequency
from gpuagent.sources.host_load import HostLoad
from gpuagent.sources.host_memory import HostMemory
from gpuagent.sources.host_network import HostNetwork
from gpuagent.sources.nvml import NvmlGpu
from gpuagent.sources.nvml_energy import NvmlEnergy
from gpuagent.sources.nvml_events import NvmlEvents
from gpuagent.sources.nvml_gpm import NvmlGpm
from gpuagent.sources.nvml_health import NvmlHealth
from gpuagent.sources.nvml_power import NvmlPower
from gpuagent.sources.nvml_processes import NvmlProcesses
from gpuagent.sources.process_pss import ProcessPss
from gpuagent.sources.process_tree import ProcessTree
from gpuagent.sources.source import Source, SourceContext
from gpuagent.sources.support.pids import seen_in_proc

_LOG = logging.getLogger(__name__)


class SourceType(Protocol):
    """How a source is opened. Raises SourceUnavailableError where it cannot work."""

    name: str

    def __call__(self, context: SourceContext, /) -> Source:
        """Open it."""
        ...


SOURCES: tuple[SourceType, ...] = (
    HostCpu,
    HostLoad,
    HostFrequency,
    HostEnergy,
    HostMemory,
    HostDisk,
    HostNetwork,
    Cgroup,
    ProcessTree,
    ProcessPss,
    NvmlGpu,
    NvmlGpm,
    Dcgm,
    NvmlPower,
    NvmlEnergy,
    NvmlProcesses,
    NvmlHealth,
    NvmlEvents,
)


def open_sources(context: SourceContext) -> tuple[list[Source], list[tuple[str, SourceUnavailableError]]]:
    """Open every source that can work here. What goes wrong in one is its own affair, and keeps no agent from starting.

    Returns:
        The open sources, and (name, why and what to do) of each of the others.
    """
    context = seen_in_proc(context)
    opened: list[Source] = []
    unavailable: list[tuple[str, SourceUnavailableError]] = []
    for source in SOURCES:
        try:
            opened.append(source(context))
        except SourceUnavailableError as error:
            unavailable.append((source.name, error))
        except Exception as error:  # noqa: BLE001 - whatever it is, the others can work
            _LOG.exception("the source %s cannot be opened", source.name)
            unavailable.append((source.name, SourceUnavailableError(f"it failed: {error!r}", "report this")))
    return opened, unavailable
