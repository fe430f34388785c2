"""The sources of samples, listed here."""

import logging
from typing import Protocol

from gpuagent.errors import SourceUnavailableError
from gpuagent.sources.cgroup import Cgroup
from gpuagent.sources.dcgm import Dcgm
from gpuagent.sources.host import HostCpu, HostDisk, HostFrequency, HostLoad, HostMemory, HostNetwork
from gpuagent.sources.host_energy import HostEnergy
from gpuagent.sources.nvml import NvmlEnergy, NvmlEvents, NvmlGpu, NvmlHealth, NvmlPower
from gpuagent.sources.nvml_gpm import NvmlGpm
from gpuagent.sources.nvml_processes import NvmlProcesses
from gpuagent.sources.owners import Owners
from gpuagent.sources.process_tree import ProcessPss, ProcessTree
from gpuagent.sources.source import Source, SourceContext
from gpuagent.sources.support.processes import translate_runs

_LOG = logging.getLogger(__name__)


class SourceType(Protocol):
    """The class of a source. Its constructor raises SourceUnavailableError where it cannot work."""

    name: str

    def __call__(self, context: SourceContext, /) -> Source:
        """Open the source."""
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
    Owners,
)


def open_sources(context: SourceContext) -> tuple[list[Source], list[tuple[str, SourceUnavailableError]]]:
    """Open every source that can work here. A failure of one prevents neither the others nor the agent from starting.

    Returns:
        The open sources, and (name, reason with remedy) of each of the others.
    """
    context = translate_runs(context)
    opened: list[Source] = []
    unavailable: list[tuple[str, SourceUnavailableError]] = []
    for source in SOURCES:
        try:
            opened.append(source(context))
        except SourceUnavailableError as error:
            unavailable.append((source.name, error))
        except Exception as error:  # noqa: BLE001 - the others can work
            _LOG.exception("the source %s cannot be opened", source.name)
            unavailable.append((source.name, SourceUnavailableError(f"it failed: {error!r}", "report this")))
    return opened, unavailable
