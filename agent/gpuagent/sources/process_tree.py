"""What each run's processes use together, from /proc/PID. `pidstat` and `ps` show the same, one process at a time."""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuagent.clock import Instant
from gpuagent.sources.source import Lane, Reading, SourceContext, Value
from gpuagent.sources.support.files import open_needed
from gpuagent.sources.support.processes import ProcessStat, RunProcesses, read_process_file, read_process_stat
from gpuagent.sources.support.rates import Rates

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# One more than there are, since ticks are coarse.
_MOST_CORES = os.sysconf("SC_NPROCESSORS_CONF") + 1


def parse_statm(text: str) -> tuple[int, int]:
    """Return (resident, anonymous) bytes of a /proc/PID/statm; they are VmRSS and RssAnon of its status file.

    Raises:
        ValueError: this is none.
    """
    _, resident, shared, *_ = map(int, text.split())
    return resident * _PAGE_BYTES, (resident - shared) * _PAGE_BYTES


def parse_io(text: str) -> tuple[int, int]:
    """Return the bytes that a process and its ended children have read from and written to storage.

    Raises:
        ValueError: this is not a /proc/PID/io.
    """
    lines = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    if "read_bytes" not in lines or "write_bytes" not in lines:
        raise ValueError("it has no read_bytes or write_bytes")
    return int(lines["read_bytes"]), int(lines["write_bytes"])


@dataclass(slots=True, kw_only=True)
class TreeUse:
    """What a run's processes have and hold at one moment. I/O is None where one of them may not be looked at."""

    processes: int = 0
    threads: int = 0
    rss_bytes: int = 0
    anonymous_bytes: int = 0
    cpu_ticks: int = 0
    read_bytes: int | None = 0
    write_bytes: int | None = 0

    def add(self, stat: ProcessStat, statm: tuple[int, int], io: tuple[int, int] | None) -> None:
        """Add one process; one that has ended but was not waited for only adds what it has used."""
        self.cpu_ticks += stat.own_cpu_ticks + stat.children_cpu_ticks
        self.add_io(io)
        if stat.has_ended:
            return
        self.processes += 1
        self.threads += stat.threads
        self.rss_bytes += statm[0]
        self.anonymous_bytes += statm[1]

    def add_io(self, io: tuple[int, int] | None) -> None:
        """Add what one process has read and written."""
        if io is None or self.read_bytes is None or self.write_bytes is None:
            self.read_bytes = self.write_bytes = None
        else:
            self.read_bytes += io[0]
            self.write_bytes += io[1]


@dataclass(slots=True)
class RisingSum:
    """A sum over processes that never falls.

    What a process has used is inherited by the parent that waits for it. Where nobody waits it vanishes from the sum;
    then it is kept here.
    """

    lost: float = 0
    last: float = 0

    def follow(self, summed: float | None) -> float | None:
        """Return the sum with what was lost; None is passed on."""
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
    """CPU, memory, threads and I/O of each run's processes, children that have ended included in CPU and I/O."""

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
        pids: dict[str, list[int]] = defaultdict(list)
        for pid, run_id in self._processes.run_of(now).items():
            pids[run_id].append(pid)
        supervisors = dict(self._context.runs.processes())
        self._runs = {run_id: self._runs.get(run_id, _Run()) for run_id in pids}
        for run_id, members in pids.items():
            use = tree_use(self._proc, members, supervisors.get(run_id))
            yield _reading(run_id, use, self._runs[run_id].per_second(use, now))

    def close(self) -> None:
        """Stop looking for processes."""
        self._processes.close()


def tree_use(proc: Path, members: Iterable[int], supervisor: int | None) -> TreeUse:
    """Return what the processes `members` use, and what those have used for which their `supervisor` has waited."""
    use = TreeUse()
    for pid in members:
        stat, statm = read_process_stat(proc, pid), _parsed_statm(proc, pid)
        if stat is not None and statm is not None:
            use.add(stat, statm, _parsed_io(proc, pid))
    stat = read_process_stat(proc, supervisor) if supervisor is not None else None
    if supervisor is not None and stat is not None:
        use.cpu_ticks += stat.children_cpu_ticks
        # What it read and wrote itself cannot be told apart from what it inherited; it does next to none.
        use.add_io(_parsed_io(proc, supervisor))
    return use


def _parsed_statm(proc: Path, pid: int) -> tuple[int, int] | None:
    text = read_process_file(proc, pid, "statm")
    try:
        return None if text is None else parse_statm(text)
    except ValueError:
        return None


def _parsed_io(proc: Path, pid: int) -> tuple[int, int] | None:
    text = read_process_file(proc, pid, "io")
    try:
        return None if text is None else parse_io(text)
    except ValueError:
        return None


def cpu_cores(ticks_per_second: float | None) -> float | None:
    """Return the cores in use; None where they are more than the node has.

    A process that ends between the reading of its own time and that of its parent, which inherits it, is counted twice
    or not at all; after hours of work that would be thousands of cores.
    """
    if ticks_per_second is None or ticks_per_second / _TICKS_PER_SECOND > _MOST_CORES:
        return None
    return ticks_per_second / _TICKS_PER_SECOND


def _reading(run_id: str, use: TreeUse, per_second: Mapping[str, float | None]) -> Reading:
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
    return Reading(table="process_samples", key=run_id, values=values)
