"""Who computes on each GPU. `nvidia-smi --query-compute-apps=pid,used_memory --format=csv` shows the same."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuagent.clock import Instant
from gpuagent.sources.source import Lane, Reading, SourceContext
from gpuagent.sources.support.gpus import Gpus
from gpuagent.sources.support.nvml_api import Nvml, NvmlUnsupportedError
from gpuagent.sources.support.processes import RunProcesses, numbers_are_the_hosts
from gpuagent_proto.keys import key


def running_processes(nvml: Nvml, uuid: str) -> Sequence[Mapping[str, Any]]:
    """Return `pid` and `usedGpuMemory` (bytes or None) of each compute process on the GPU.

    Raises:
        NvmlError: the driver does not tell.
    """
    processes: Sequence[Mapping[str, Any]]
    try:
        processes = nvml.ask("nvmlDeviceGetComputeRunningProcesses_v3", uuid)
    except NvmlUnsupportedError:
        # Drivers before 510.
        processes = nvml.ask("nvmlDeviceGetComputeRunningProcesses_v2", uuid)
    return processes


class NvmlProcesses:
    """How many processes compute on each GPU, what memory they hold, and which of them are parts of runs.

    NVML numbers processes as the host does. Where the agent sees other numbers, no process can be said to be a run's.
    """

    name = "nvml_processes"
    lane = Lane.SLOW
    max_rate_hz = 1.0

    def __init__(self, context: SourceContext) -> None:
        self._gpus = Gpus(context.open_nvml)
        self._processes = RunProcesses(context) if numbers_are_the_hosts(context.proc) else None

    def read(self, now: Instant) -> Iterable[Reading]:
        """Yield one row a GPU, and one for each process on it."""
        run_of = self._processes.run_of(now) if self._processes else {}
        return self._gpus.read(lambda nvml, uuid: _read_gpu(nvml, uuid, run_of), now)

    def close(self) -> None:
        """End the session with NVML."""
        self._gpus.close()
        if self._processes:
            self._processes.close()


def _read_gpu(nvml: Nvml, uuid: str, run_of: Mapping[int, str]) -> Iterable[Reading]:
    device_id = key(uuid)
    try:
        processes = running_processes(nvml, uuid)
    except NvmlUnsupportedError:
        return
    yield Reading(table="gpu_samples", key=device_id, values={"device_id": device_id, "process_count": len(processes)})
    for process in processes:
        pid, memory = process["pid"], process["usedGpuMemory"]
        yield Reading(
            table="gpu_process_samples",
            key=f"{uuid}/{pid}",
            values={"device_id": device_id, "pid": pid, "run_id": run_of.get(pid), "memory_used_bytes": memory},
        )
