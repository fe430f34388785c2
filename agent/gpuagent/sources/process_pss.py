"""The memory of each run's processes with shared pages divided among the sharers. `smem` shows the same."""

from collections.abc import Iterable

import psutil

from gpuagent.clock import Instant
from gpuagent.sources.source import Lane, Reading, SourceContext, Value
from gpuagent.sources.support.files import PSUTIL_ERRORS, open_needed
from gpuagent.sources.support.processes import RunProcesses, group_by_run


class ProcessPss:
    """PSS of each run's process tree. Without it, data-loading workers seem to hold the same memory many times."""

    name = "process_pss"
    lane = Lane.SLOW
    # The kernel walks the page tables for it: 0.1 ms for a small process, tens of ms for a large one.
    max_rate_hz = 0.2

    def __init__(self, context: SourceContext) -> None:
        open_needed(context.proc / "self/smaps_rollup", "Linux 4.14 and newer have it").close()
        self._processes = RunProcesses(context)

    def read(self, now: Instant) -> Iterable[Reading]:
        """Yield one row for each run whose processes are all readable."""
        for run_id, pids in group_by_run(self._processes.run_of(now)).items():
            parts = [read_pss(pid) for pid in pids]
            known = [part for part in parts if part is not None]
            if len(known) == len(parts):
                values: dict[str, Value] = {"run_id": run_id, "pss_bytes": sum(known)}
                yield Reading(table="process_samples", key=run_id, values=values)

    def close(self) -> None:
        """Stop looking for processes."""
        self._processes.close()


def read_pss(pid: int) -> int | None:
    """Return a process's PSS in bytes, 0 for one that has ended, None for one that this user may not read."""
    try:
        return int(psutil.Process(pid).memory_full_info().pss)
    except psutil.NoSuchProcess:  # and ZombieProcess, which is one
        return 0
    except PSUTIL_ERRORS:
        return None
