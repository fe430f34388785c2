"""A neighbour of a measured workload that holds memory, and with --stream also uses its bandwidth.

python -m gpuagent_workloads run memory-burn --percent 50 --stream --duration 60
"""

import ctypes
import math
import mmap
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.measuring.host_memory import available_bytes
from gpuagent_workloads.parameters import Checked, parameter
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.workload import Workload

# Memory is written and copied in blocks of this size: more than a core's own cache holds, and done in milliseconds,
# so that a signal or the end of the time is noticed.
BLOCK_BYTES = 8 << 20

_MOST_WRITERS = 16

# The longest sleep without --stream; a signal ends it.
_REST_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Checked):
    """The amount of memory, its use, and the duration."""

    bytes: int | None = parameter(None, help="memory to hold, instead of --percent", minimum=2 * BLOCK_BYTES)
    percent: float = parameter(50.0, help="memory to hold, of what is available at the start", minimum=0.1, maximum=95)
    stream: bool = parameter(False, help="copy one half onto the other with one core")
    duration: float | None = parameter(None, help="seconds; by default until it is stopped", minimum=0.1, maximum=1e9)


def burn(config: Config, reporter: Reporter) -> None:
    """Hold the memory until the time is up or the process is stopped, then report the held amount.

    Raises:
        MisuseError: not enough is available.
        WorkloadError: the kernel refused it.
    """
    size_bytes = _choose_size(config, available_bytes())
    reporter.phase("warmup")
    resident_before_bytes = _resident_bytes()
    memory = hold(size_bytes)
    copied_bytes, began_seconds = 0, time.perf_counter()
    until_seconds = began_seconds + (config.duration or math.inf)
    copies = _copy(memory)
    try:
        reporter.phase("measure")
        while (left_seconds := until_seconds - time.perf_counter()) > 0:
            if config.stream:
                copied_bytes += next(copies)
            else:
                time.sleep(min(left_seconds, _REST_SECONDS))
    finally:
        held_bytes = _resident_bytes() - resident_before_bytes
        seconds = time.perf_counter() - began_seconds
        reporter.phase("teardown")
        reporter.result("asked_bytes", size_bytes, unit="bytes")
        reporter.result("held_bytes", held_bytes, unit="bytes")
        if config.stream:
            # Each byte that is copied is read once and written once.
            reporter.result("stream_bytes_per_second", 2 * copied_bytes / seconds, unit="bytes/s")


def hold(size_bytes: int) -> mmap.mmap:
    """Return memory of that size, a whole number of blocks, all of it written.

    Raises:
        WorkloadError: the kernel refused it.
    """
    try:
        # Private: shared memory would count as page cache.
        memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise WorkloadError(f"the kernel refuses {size_bytes} bytes: {error.strerror}") from error
    # Noise, since a system that compresses swapped memory would reduce zeros to nearly nothing.
    noise = os.urandom(BLOCK_BYTES)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    # One CPU takes minutes to get hundreds of gigabytes from the kernel.
    pool = ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), _MOST_WRITERS))
    try:
        # Unlike an assignment, memmove lets other threads run.
        starts = range(0, len(memory), BLOCK_BYTES)
        list(pool.map(lambda start: ctypes.memmove(address + start, noise, BLOCK_BYTES), starts))
    finally:
        pool.shutdown(cancel_futures=True)
    return memory


def _copy(memory: mmap.mmap) -> Iterator[int]:
    """Copy the first half onto the second for ever, and yield the bytes of each copied block."""
    middle = len(memory) // BLOCK_BYTES // 2 * BLOCK_BYTES
    while True:
        for start in range(0, middle, BLOCK_BYTES):
            memory.move(middle + start, start, BLOCK_BYTES)
            yield BLOCK_BYTES


def _choose_size(config: Config, available: int) -> int:
    """Return the amount to hold, in whole blocks."""
    wanted = config.bytes if config.bytes is not None else int(available * config.percent / 100)
    if wanted > available:
        raise MisuseError(f"--bytes {wanted} is more than the {available} available bytes")
    blocks = wanted // BLOCK_BYTES
    if blocks < 2:
        raise MisuseError(f"only {available} bytes are available, too few for --percent")
    return blocks * BLOCK_BYTES


def _resident_bytes() -> int:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * mmap.PAGESIZE


WORKLOAD = Workload(
    name="memory-burn",
    summary="Holds memory, and on demand uses its bandwidth, to run beside what is measured.",
    kind="interference",
    study="S3: training multiplexed with other work on the same node",
    data="none",
    memory="what --bytes or --percent says, and about 20 MB",
    config=Config,
    entry="gpuagent_workloads.suite.memory_burn:burn",
    first_phase="setup",
)
