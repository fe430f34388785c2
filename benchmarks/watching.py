"""The cost of a running process, from /proc."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """The resources of a process in a stretch of time, over all threads."""

    # Of one core.
    cpu_percent: float
    # The kernel's part of it, which is counted in ticks: over 6 s one tick is 0.2 %.
    system_percent: float
    # At the end.
    rss_mib: float
    # Context switches, voluntary and not.
    switches_per_second: float
    # Of one core, by the names of threads, such as those of the agent's parts.
    percent_by_thread: Mapping[str, float]


def watch(pid: int, seconds: float) -> Use:
    """Watch the process `pid` for some seconds.

    CPU time is the scheduler's, in nanoseconds: the usual ticks of 10 ms are too coarse for a process that uses less
    than a hundredth of a core.
    """
    before_nano, switches_before = _counters(pid)
    system_before_seconds = psutil.Process(pid).cpu_times().system
    began_seconds = time.perf_counter()
    time.sleep(seconds)
    after_nano, switches_after = _counters(pid)
    elapsed_seconds = time.perf_counter() - began_seconds
    system_seconds = psutil.Process(pid).cpu_times().system - system_before_seconds
    by_thread = {name: (nano - before_nano[name]) / elapsed_seconds / 1e7 for name, nano in after_nano.items()}
    return Use(
        system_percent=100 * system_seconds / elapsed_seconds,
        cpu_percent=sum(by_thread.values()),
        percent_by_thread=by_thread,
        rss_mib=_status(Path("/proc", str(pid)))["VmRSS"] / 1024,
        switches_per_second=(switches_after - switches_before) / elapsed_seconds,
    )


def _counters(pid: int) -> tuple[Counter[str], int]:
    """Return the CPU time of a process so far in nanoseconds, by the name of its threads, and its context switches."""
    cpu_nano: Counter[str] = Counter()
    switches = 0
    for thread in Path("/proc", str(pid), "task").iterdir():
        cpu_nano[(thread / "comm").read_text().strip()] += int((thread / "schedstat").read_text().split()[0])
        status = _status(thread)
        switches += status["voluntary_ctxt_switches"] + status["nonvoluntary_ctxt_switches"]
    return cpu_nano, switches


def _status(process: Path) -> dict[str, int]:
    lines = (line.partition(":") for line in (process / "status").read_text().splitlines())
    return {name: int(rest.split()[0]) for name, _, rest in lines if rest.split() and rest.split()[0].isdecimal()}
