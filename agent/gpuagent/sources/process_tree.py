"""The use and the memory of each run's processes together, from /proc/PID. `pidstat`, `ps`, `smem` show each process.

psutil costs more than twice as much for each process, on the fast lane.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil

from gpuagent.clock import Instant
from gpuagent.sources.source import Lane, Reading, SourceContext, Value
from gpuagent.sources.support.files import PSUTIL_ERRORS, open_needed
from gpuagent.sources.support.processes import RunProcesses, group_by_run, read_process_file, read_process_stat
from gpuagent.sources.support.rates import Rates

T = TypeVar("T")

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# One more than the node has, since ticks are coarse.
_MOST_CORES = os.sysconf("SC_NPROCESSORS_CONF") + 1


def parse_statm(text: str) -> tuple[int, int]:
    """Return (resident, anonymous) bytes of a /proc/PID/statm; they are VmRSS and RssAnon of its status file.

    Raises ValueError: this is another file.
    """
    _, resident, shared, *_ = map(int, text.split())
    return resident * _PAGE_BYTES, (resident - shared) * _PAGE_BYTES


def parse_io(text: str) -> tuple[int, int]:
    """Return the bytes that a process and its ended children have read from and written to storage.

    Raises ValueError: this is not a /proc/PID/io.
    """
    lines = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    if "read_bytes" not in lines or "write_bytes" not in lines:
        raise ValueError("it has no read_bytes or write_bytes")
    return int(lines["read_bytes"]), int(lines["write_bytes"])


@dataclass(slots=True, kw_only=True)
class TreeUse:
    """The use of a run's processes at one moment. I/O is None where this user may not read that of one of them."""

    processes: int = 0
    threads: int = 0
    rss_bytes: int = 0
    anonymous_bytes: int = 0
    cpu_ticks: int = 0
    read_bytes: int | None = 0
    write_bytes: int | None = 0

    def add_io(self, io: tuple[int, int] | None) -> None:
        """Add the I/O of one process."""
        if io is None or self.read_bytes is None or self.write_bytes is None:
            self.read_bytes = self.write_bytes = None
        else:
            self.read_bytes += io[0]
            self.write_bytes += io[1]


@dataclass(slots=True)
class RisingSum:
    """A sum over processes that never falls.

    The parent that waits for a process inherits its counters. Where nobody waits they vanish from the sum, and are kept
    here.
    """

    lost: float = 0
    last: float = 0

    def follow(self, summed: float | None) -> float | None:
        """Return the sum with the lost part; None stays None."""
        if summed is None:
            return None
        self.lost += max(0, self.last - summed)
        self.last = summed
        return summed + self.lost


@dataclass(slots=True)
class _Run:
    sums: dict[str, RisingSum] = field(default_factory=lambda: defaultdict(RisingSum))
    rates: Rates[str] = field(default_factory=Rates)

    def per_second(self, use: TreeUse, now: Instant) -> dict[str, float | None]:
        counters = {"cpu": use.cpu_ticks, "read": use.read_bytes, "write": use.write_bytes}
        return self.rates.per_second({name: self.sums[name].follow(count) for name, count in counters.items()}, now)


class ProcessTree:
    """CPU, memory, threads and I/O of each run's processes; CPU and I/O include children that have ended."""

    name = "process_tree"
    lane = Lane.FAST
    # The kernel counts CPU time in ticks of 10 ms: over half a second one tick is 2 % of a core.
    max_rate_hz = 2.0

    def __init__(self, context: SourceContext) -> None:
        open_needed(context.proc / "self/stat").close()
        self._proc = context.proc
        self._processes = RunProcesses(context)
        self._context = context
        self._runs: dict[str, _Run] = {}

    def read(self, now: Instant) -> Iterable[Reading]:
        """Yield one row for each run that has processes."""
        pids = group_by_run(self._processes.run_of(now))
        supervisors = dict(self._context.runs.processes())
        self._runs = {run_id: self._runs.get(run_id, _Run()) for run_id in pids}
        for run_id, members in pids.items():
            supervisor = supervisors.get(run_id)
            use = tree_use(self._proc, members, None if supervisor in members else supervisor)
            per_second = self._runs[run_id].per_second(use, now)
            values: dict[str, Value] = {
                "run_id": run_id,
                "processes": use.processes,
                "threads": use.threads,
                "cpu_cores": cpu_cores(per_second.get("cpu")),
                "rss_bytes": use.rss_bytes,
                "anonymous_bytes": use.anonymous_bytes,
                "read_bytes_per_second": per_second.get("read"),
                "write_bytes_per_second": per_second.get("write"),
            }
            yield Reading(table="process_samples", key=run_id, values=values)

    def close(self) -> None:
        """Stop looking for processes."""
        self._processes.close()


def tree_use(proc: Path, members: Iterable[int], supervisor: int | None) -> TreeUse:
    """Return the use of the processes `members`, and of those that their `supervisor` has waited for."""
    use = TreeUse()
    for pid in members:
        stat, statm = read_process_stat(proc, pid), _read_parsed(proc, pid, "statm", parse_statm)
        if stat is None or statm is None:
            continue
        use.cpu_ticks += stat.own_cpu_ticks + stat.children_cpu_ticks
        use.add_io(_read_parsed(proc, pid, "io", parse_io))
        # A process that nobody has waited for yet holds nothing any more.
        if not stat.has_ended:
            use.processes += 1
            use.threads += stat.threads
            use.rss_bytes += statm[0]
            use.anonymous_bytes += statm[1]
    stat = read_process_stat(proc, supervisor) if supervisor is not None else None
    if supervisor is not None and stat is not None:
        use.cpu_ticks += stat.children_cpu_ticks
        # Its own I/O cannot be separated from the inherited one; it does next to none.
        use.add_io(_read_parsed(proc, supervisor, "io", parse_io))
    return use


def _read_parsed(proc: Path, pid: int, name: str, parse: Callable[[str], T]) -> T | None:
    text = read_process_file(proc, pid, name)
    try:
        return None if text is None else parse(text)
    except ValueError:
        return None


def cpu_cores(ticks_per_second: float | None) -> float | None:
    """Return the cores in use; None where they are more than the node has.

    The parent of a process that ends inherits its time. One that ends between the readings of both is counted twice or
    not at all; after hours of work that would be thousands of cores.
    """
    if ticks_per_second is None or ticks_per_second / _TICKS_PER_SECOND > _MOST_CORES:
        return None
    return ticks_per_second / _TICKS_PER_SECOND


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
