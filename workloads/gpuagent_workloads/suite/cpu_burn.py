"""A CPU-heavy neighbour of a measured workload: keeps cores busy for a share of the time.

Each worker is a process that alternates between arithmetic and sleep, many times a second. Workers are not bound to
cores: like any neighbour they run where the kernel puts them. They end when a pipe closes, so
that none survives its parent, however it ended.
"""

import multiprocessing
import os
import resource
import select
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.workload import Checked, Workload, parameter

# Busy and idle time alternate this fast: well below a sampling interval, well above the kernel's time slice.
PERIOD_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Checked):
    """The share of the CPU, and the duration."""

    load: float = parameter(100.0, help="percent of each core", minimum=1, maximum=100)
    cores: int | None = parameter(None, help="number of cores; by default all that this process may use", minimum=1)
    duration: float | None = parameter(None, help="seconds; by default until it is stopped", minimum=0.1, maximum=1e9)


def burn(config: Config, reporter: Reporter) -> None:
    """Burn until the time is up or the process is stopped, then report the achieved load.

    Raises:
        MisuseError: more cores than this process may use.
        WorkloadError: a worker ended by itself.
    """
    usable = len(os.sched_getaffinity(0))
    cores = config.cores or usable
    if cores > usable:
        raise MisuseError(f"--cores {cores} is more than the {usable} cores that this process may use")
    reporter.result("cores", cores)
    reporter.phase("warmup")
    started_seconds, started_cpu_seconds = time.perf_counter(), _children_cpu_seconds()
    try:
        with _run_workers(cores, config.load / 100) as workers:
            reporter.phase("measure")
            if wait([worker.sentinel for worker in workers], timeout=config.duration):
                raise WorkloadError("a worker ended by itself: perhaps memory ran out")
    finally:
        wall_seconds = time.perf_counter() - started_seconds
        cpu_seconds = _children_cpu_seconds() - started_cpu_seconds
        reporter.phase("teardown")
        reporter.result("cpu_seconds", cpu_seconds, unit="s")
        reporter.result("achieved_load", 100 * cpu_seconds / (cores * wall_seconds), unit="%")


@contextmanager
def _run_workers(cores: int, share: float) -> Iterator[Sequence[BaseProcess]]:
    context = multiprocessing.get_context("fork")
    lifeline_read, lifeline_write = os.pipe()
    workers: list[BaseProcess] = []
    try:
        with _block_signals():
            for _ in range(cores):
                worker: BaseProcess = context.Process(target=_work, args=(share, lifeline_read, lifeline_write))
                worker.start()
                workers.append(worker)
        yield workers
    finally:
        os.close(lifeline_write)
        for worker in workers:
            worker.join()
        os.close(lifeline_read)


@contextmanager
def _block_signals() -> Iterator[None]:
    """Block SIGINT and SIGTERM while workers start, which this process does not know yet.

    Workers inherit the mask: a signal to the whole process group leaves them to the lifeline.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(share: float, lifeline_read: int, lifeline_write: int) -> None:
    """Be busy for `share` of each period until the lifeline's write end is closed."""
    os.close(lifeline_write)
    period_ends_seconds = time.perf_counter()
    rest_seconds = 0.0
    while not select.select([lifeline_read], [], [], rest_seconds)[0]:
        period_ends_seconds = max(period_ends_seconds + PERIOD_SECONDS, time.perf_counter())
        cpu_seconds = share * PERIOD_SECONDS
        enough_seconds = time.process_time() + cpu_seconds
        value = 1.0
        while time.process_time() < enough_seconds and time.perf_counter() < period_ends_seconds:
            for _ in range(1000):
                value = value * 1.0000001 + 1e-9
        rest_seconds = max(0.0, period_ends_seconds - time.perf_counter())


def _children_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


WORKLOAD = Workload(
    name="cpu-burn",
    summary="Keeps CPU cores busy for a given share of the time, to run beside what is measured.",
    kind="interference",
    study="S3: training multiplexed with a CPU-heavy workload on the same node",
    data="none",
    memory="about 15 MB a core",
    config=Config,
    entry="gpuagent_workloads.suite.cpu_burn:burn",
    first_phase="setup",
)
