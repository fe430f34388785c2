"""The CPU time of each reading by hand and with psutil: `python -m benchmarks.psutil_cost` prints a Markdown table.

What docs/architecture.md says of psutil comes from it. Each figure is the best of five means, in µs of the
calling thread, the kernel's part included. The readings are of this machine and of this process.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from gpuagent.clock import Instant
from gpuagent.sources.host import parse_meminfo, parse_net_dev, parse_stat
from gpuagent.sources.process_tree import tree_use
from gpuagent.sources.source import SourceContext
from gpuagent.sources.support.files import OpenFile
from gpuagent.sources.support.processes import RunProcesses, read_process_file

PROC = Path("/proc")
CALLS = 300
Reading = tuple[str, Callable[[], object], Callable[[], object]]


class OneRun:
    """This process's parent as the supervisor of a run."""

    is_busy = True

    def processes(self) -> list[tuple[str, int]]:
        return [("run", os.getppid())]

    def programs(self) -> list[int]:
        return []


def cpu_micros(read: Callable[[], object]) -> float:
    """Return the CPU time of one call in µs: the best of five means."""
    read()
    means: list[float] = []
    for _ in range(5):
        started = time.thread_time_ns()
        for _ in range(CALLS):
            read()
        means.append((time.thread_time_ns() - started) / CALLS / 1000)
    return min(means)


def parse_diskstats(text: str) -> dict[str, tuple[int, int]]:
    lines = (line.split() for line in text.splitlines())
    return {fields[2]: (int(fields[5]) * 512, int(fields[9]) * 512) for fields in lines if len(fields) > 9}


def parse_pss(pid: int) -> int:
    text = read_process_file(PROC, pid, "smaps_rollup") or ""
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))


def read_start_ticks(pid: int) -> int:
    return int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[19])


def read_tree(process: psutil.Process) -> None:
    with process.oneshot():
        process.cpu_times()
        process.num_threads()
        process.memory_info()
        process.io_counters()
        process.status()


def readings() -> Iterator[Reading]:
    """Yield the name of each reading, by hand and with psutil."""
    stat, meminfo, loadavg, diskstats, net_dev = (
        OpenFile(PROC / name) for name in ("stat", "meminfo", "loadavg", "diskstats", "net/dev")
    )
    pid = os.getpid()
    process = psutil.Process(pid)
    yield "CPU times", lambda: parse_stat(stat.read_begin()), psutil.cpu_times
    memory = (psutil.virtual_memory, psutil.swap_memory)
    yield "memory and swap", lambda: parse_meminfo(meminfo.read()), lambda: [read() for read in memory]
    yield "load", lambda: float(loadavg.read().partition(" ")[0]), psutil.getloadavg
    disks = lambda: psutil.disk_io_counters(perdisk=True, nowrap=False)  # noqa: E731
    yield "disk counters", lambda: parse_diskstats(diskstats.read()), disks
    network = lambda: psutil.net_io_counters(pernic=True, nowrap=False)  # noqa: E731
    yield "network counters", lambda: parse_net_dev(net_dev.read()), network
    pids = lambda: {int(name) for name in os.listdir(PROC) if name.isdecimal()}  # noqa: E731, PTH208
    yield "numbers of all processes", pids, psutil.pids
    runs, parent = RunProcesses(SourceContext(runs=OneRun())), psutil.Process(os.getppid())
    now = Instant(unix_nano=0, monotonic_nano=0)
    yield "processes of a run", lambda: runs.run_of(now), lambda: parent.children(recursive=True)
    yield "use of one process", lambda: tree_use(PROC, [pid], None), lambda: read_tree(process)
    yield "PSS of one process", lambda: parse_pss(pid), lambda: psutil.Process(pid).memory_full_info().pss
    yield "start of a process", lambda: read_start_ticks(pid), lambda: psutil.Process(pid).create_time()
    name = lambda: read_process_file(PROC, pid, "comm")  # noqa: E731
    yield "name of a process", name, lambda: psutil.Process(pid).name()


def main() -> None:
    """Print the table."""
    print(f"psutil {psutil.__version__}, {psutil.cpu_count()} CPUs, {len(psutil.pids())} processes\n")
    print("| reading | by hand µs | psutil µs |\n|---|---:|---:|")
    for name, by_hand, with_psutil in readings():
        print(f"| {name} | {cpu_micros(by_hand):.1f} | {cpu_micros(with_psutil):.1f} |")


if __name__ == "__main__":
    main()
