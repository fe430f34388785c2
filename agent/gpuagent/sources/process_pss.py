"""The memory of each run's processes with shared pages divided among those who share. `smem` shows the same."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from gpuagent.clock import Instant
from gpuagent.sources.source import Lane, Reading, SourceContext, Value
from gpuagent.sources.support.files import open_needed
from gpuagent.sources.support.processes import RunProcesses, read_process_file, read_process_stat


def parse_pss(text: str) -> int:
    """Return the PSS, in bytes, of a /proc/PID/smaps_rollup.

    Raises:
        ValueError: it has none.
    """
    for line in text.splitlines():
        if line.startswith("Pss:"):
            kibibytes, _, _ = line.removeprefix("Pss:").strip().partition(" ")
            return int(kibibytes) * 1024
    raise ValueError("it has no Pss")


class ProcessPss:
    """PSS of each run's process tree. Without it, data-loading workers seem to hold the same memory many times."""

    name = "process_pss"
    lane = Lane.SLOW
    # The kernel walks the page tables for it: 0.1 ms for a small process, tens of ms for a large one.
    max_rate_hz = 0.2

    def __init__(self, context: SourceContext) -> None:
        open_needed(context.proc / "self/smaps_rollup", "Linux 4.14 and newer have it").close()
        self._proc = context.proc
        self._processes = RunProcesses(context)

    def read(self, now: Instant) -> Iterable[Reading]:
        """Yield one row for each run all of whose processes may be looked at."""
        members: dict[str, list[int]] = defaultdict(list)
        for pid, run_id in self._processes.run_of(now).items():
            members[run_id].append(pid)
        for run_id, pids in members.items():
            parts = [_pss(self._proc, pid) for pid in pids]
            if None not in parts:
                values: dict[str, Value] = {"run_id": run_id, "pss_bytes": sum(part or 0 for part in parts)}
                yield Reading(table="process_samples", key=run_id, values=values)

    def close(self) -> None:
        """Stop looking for processes."""
        self._processes.close()


def _pss(proc: Path, pid: int) -> int | None:
    """Return a process's PSS, 0 for one that has ended, None for one that may not be looked at."""
    text = read_process_file(proc, pid, "smaps_rollup")
    try:
        return parse_pss(text or "")
    except ValueError:
        stat = read_process_stat(proc, pid)
        return 0 if stat is None or stat.has_ended else None
