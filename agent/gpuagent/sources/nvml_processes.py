"""Who computes on each GPU. `nvidia-smi --query-compute-apps=pid,used_memory --format=csv` shows the same.

How busy each of them keeps it is what `nvidia-smi pmon` shows.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuagent.clock import Instant
from gpuagent.sources.source import Lane, Reading, SourceContext, Value
from gpuagent.sources.support.gpu_processes import IDLE, GpuProcesses, Holder, ProcessUse, Use
from gpuagent.sources.support.gpus import Gpus, parts
from gpuagent.sources.support.nvml_api import Nvml, NvmlUnsupportedError
from gpuagent.sources.support.pods import place_of
from gpuagent.sources.support.processes import RunProcesses
from gpuagent_common.keys import key


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
    """Which processes compute on each GPU, for which runs, what memory they hold and how busy they keep it."""

    name = "nvml_processes"
    lane = Lane.SLOW
    max_rate_hz = 1.0

    def __init__(self, context: SourceContext) -> None:
        self._gpus = Gpus(context.open_nvml, parts)
        self._run_processes = RunProcesses(context)
        self._proc = context.proc
        self._processes = GpuProcesses(context.proc)
        self._use: defaultdict[str, ProcessUse] = defaultdict(ProcessUse)

    def read(self, now: Instant) -> Iterable[Reading]:
        """Yield one row a GPU where all its processes can be seen, and one for each process on it."""
        run_of = self._run_processes.run_of(now)
        return self._gpus.read(lambda nvml, uuid: self._read_gpu(nvml, uuid, run_of, now), now)

    def _read_gpu(self, nvml: Nvml, uuid: str, run_of: Mapping[int, str], now: Instant) -> Iterable[Reading]:
        device_id = key(uuid)
        listed = running_processes(nvml, uuid)
        told = self._use[uuid].read(nvml, uuid, now)
        use = {self._processes.find(number, run_of).pid: one for number, one in (told or {}).items()}
        # Elsewhere than in the host's namespace, who is not told of may only go by another number.
        unseen = IDLE if told is not None and self._processes.sees_all else None
        holders = {self._processes.find(one["pid"], run_of): one["usedGpuMemory"] for one in listed}
        if self._processes.sees_all:
            values = {"device_id": device_id, "process_count": len(holders)}
            yield Reading(table="gpu_samples", key=device_id, values=values)
        for holder, memory_bytes in holders.items():
            row = self._row(device_id, holder, memory_bytes, use.get(holder.pid, unseen))
            yield Reading(table="gpu_process_samples", key=f"{uuid}/{holder.pid}", values=row)

    def _row(self, device_id: int, holder: Holder, memory_bytes: int | None, use: Use | None) -> dict[str, Value]:
        # Where the number may be another namespace's, the process in /proc may be another one.
        place = place_of(self._proc, holder.pid) if self._processes.sees_all else None
        return {
            "device_id": device_id,
            "pid": holder.pid,
            "run_id": holder.run_id,
            "pod_uid": place.pod_uid if place else None,
            "container_id": place.container_id if place else None,
            # Whoever computes holds some. Newer drivers say 0 in a PID namespace, for they do not know.
            "memory_used_bytes": memory_bytes or None,
            "utilization_percent": use.sm_percent if use else None,
            "memory_utilization_percent": use.memory_percent if use else None,
        }

    def close(self) -> None:
        """End the session with NVML, and stop looking for processes."""
        self._gpus.close()
        self._run_processes.close()
