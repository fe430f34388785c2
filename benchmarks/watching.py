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
    # At the end.
    rss_mib: float
    # Of one core, by the names of threads, such as those of the agent's parts.
    percent_by_thread: Mapping[str, float]


def watch(pid: int, seconds: float) -> Use:
    """Watch the process `pid` for some seconds.

    CPU time is the scheduler's, in nanoseconds: the usual ticks of 10 ms are too coarse for a process that uses less
    than a hundredth of a core.
    """
    before_nano = _cpu_nano(pid)
    began_seconds = time.perf_counter()
    time.sleep(seconds)
    after_nano = _cpu_nano(pid)
    elapsed_seconds = time.perf_counter() - began_seconds
    by_thread = {name: (nano - before_nano[name]) / elapsed_seconds / 1e7 for name, nano in after_nano.items()}
    return Use(
        cpu_percent=sum(by_thread.values()),
        percent_by_thread=by_thread,
        rss_mib=psutil.Process(pid).memory_info().rss / 2**20,
    )


def _cpu_nano(pid: int) -> Counter[str]:
    """Return the CPU time of a process so far in nanoseconds, by the name of its threads."""
    cpu_nano: Counter[str] = Counter()
    for thread in Path("/proc", str(pid), "task").iterdir():
        cpu_nano[(thread / "comm").read_text().strip()] += int((thread / "schedstat").read_text().split()[0])
    return cpu_nano
