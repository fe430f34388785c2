"""The processes on each GPU. `nvidia-smi --query-compute-apps=pid,used_memory --format=csv` shows the same.

`nvidia-smi pmon` shows how busy each of them keeps it.
"""

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from gpuagent.clock import Instant
from gpuagent.sources.source import Lane, Reading, SourceContext, Value
from gpuagent.sources.support.gpu_processes import IDLE, GpuProcesses, Place, ProcessUse, place_of
from gpuagent.sources.support.gpus import GpuSource, device_rows, parts
from gpuagent.sources.support.idle_gpus import SparingPace, Use
from gpuagent.sources.support.nvml_api import Nvml, NvmlError, NvmlUnsupportedError
from gpuagent.sources.support.processes import RunProcesses
from gpuagent_common.keys import key

# Between two readings of an idle GPU; a new process shows in its memory within a second.
_IDLE_NANO = 5_000_000_000


def running_processes(nvml: Nvml, uuid: str) -> Sequence[Mapping[str, Any]]:
    """Return `pid` and `usedGpuMemory` (bytes or None) of each compute process on the GPU.

    Raises NvmlError: the driver does not list them.
    """
    processes: Sequence[Mapping[str, Any]]
    # Drivers before 510 lack the third, those before 450 the second.
    for version in ("v3", "v2"):
        with contextlib.suppress(NvmlUnsupportedError):
            processes = nvml.ask(f"nvmlDeviceGetComputeRunningProcesses_{version}", uuid)
            return processes
    processes = nvml.ask("nvmlDeviceGetComputeRunningProcesses_v1", uuid)
    return processes


class NvmlProcesses(GpuSource):
    """The processes on each GPU, their runs, the memory that they hold and how busy they keep the GPU."""

    name = "nvml_processes"
    lane = Lane.SLOW
    max_rate_hz = 1.0
    list_uuids = staticmethod(parts)

    def __init__(self, context: SourceContext) -> None:
        super().__init__(context)
        self._activity = context.activity
        self._shared = context.holders
        self._pace = SparingPace(context.activity, _IDLE_NANO)
        self._run_processes = RunProcesses(context)
        self._proc = context.proc
        self._processes = GpuProcesses(context.proc)
        self._use: defaultdict[str, ProcessUse] = defaultdict(ProcessUse)

    def _read_gpu(self, nvml: Nvml, uuid: str, now: Instant) -> Iterable[Reading]:
        if not self._pace.is_due(uuid, now):
            return
        run_of = self._run_processes.run_of(now)
        sees_all, find = self._processes.sees_all, self._processes.find
        listed = running_processes(nvml, uuid)
        self._activity.note_processes(uuid, len(listed))
        self._shared.renew_use = partial(self._renew_use, nvml)
        reported = self._read_use(nvml, uuid, now)
        self._pace.note_read(uuid, now)
        use = reported or {}
        # Outside of the host's namespace, a process without use may only have another number.
        unreported = IDLE if reported is not None and sees_all else None
        holders = {find(one["pid"], run_of): one["usedGpuMemory"] for one in listed}
        if sees_all:
            yield from device_rows(uuid, {"process_count": len(holders)})
        shares: dict[int, float | None] = {}
        for holder, memory_bytes in holders.items():
            # Where the number may be another namespace's, the process in /proc may be another one.
            place = place_of(self._proc, holder.pid) if sees_all else Place()
            busy = use.get(holder.pid, unreported)
            values: dict[str, Value] = {
                "device_id": key(uuid),
                "pid": holder.pid,
                "run_id": holder.run_id,
                "pod_uid": place.pod_uid,
                "container_id": place.container_id,
                # Each of them holds some. Newer drivers report 0 in a PID namespace, since they do not know.
                "memory_used_bytes": memory_bytes or None,
                "utilization_percent": busy.sm_percent if busy else None,
                "memory_utilization_percent": busy.memory_percent if busy else None,
            }
            shares[holder.pid] = busy.sm_percent if busy else None
            yield Reading(table="gpu_process_samples", key=f"{uuid}/{holder.pid}", values=values)
        if sees_all:
            memory = {holder.pid: memory_bytes or None for holder, memory_bytes in holders.items()}
            self._shared.note_processes(uuid, memory, shares if reported is not None else None)

    def _read_use(self, nvml: Nvml, uuid: str, now: Instant, *, at_once: bool = False) -> Mapping[int, Use] | None:
        reported = self._use[uuid].read(nvml, uuid, now, at_once=at_once)
        if reported is None:
            return None
        run_of = self._run_processes.run_of(now)
        use = {self._processes.find(number, run_of).pid: one for number, one in reported.items()}
        if self._processes.sees_all:
            self._shared.add_use(uuid, use, now)
        return use

    def _renew_use(self, nvml: Nvml, uuid: str, now: Instant) -> None:
        with contextlib.suppress(NvmlError):
            self._read_use(nvml, uuid, now, at_once=True)

    def close(self) -> None:
        """End the session with NVML, and stop looking for processes."""
        super().close()
        self._run_processes.close()
