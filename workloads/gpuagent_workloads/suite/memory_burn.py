"""A neighbour that holds memory, and with --stream also uses its bandwidth, beside what is measured.

python -m gpuagent_workloads run memory-burn --percent 50 --stream --duration 60
"""

import ctypes
import mmap
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.errors import WorkloadError
from gpuagent_workloads.parameters import check, parameter
from gpuagent_workloads.report import Reporter
from gpuagent_workloads.workload import Workload

# Memory is written and copied in blocks of this size: more than a core's own cache holds, and done in milliseconds,
# so that a signal or the end of the time is noticed.
BLOCK_BYTES = 8 << 20

_MOST_WRITERS = 16

# How long to sleep at a time when there is nothing to do; a signal ends it.
_REST_SECONDS = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """How much memory, what to do with it, and for how long."""

    bytes: int | None = parameter(None, help="how much memory to hold, instead of --percent", minimum=2 * BLOCK_BYTES)
    percent: float = parameter(
        50.0, help="how much memory to hold, of what is available when it starts", minimum=0.1, maximum=95
    )
    stream: bool = parameter(False, help="copy one half onto the other all the time, with one core")
    duration: float | None = parameter(None, help="seconds; until it is stopped if not given", minimum=0.1, maximum=1e9)

    def __post_init__(self) -> None:
        check(self)


def burn(config: Config, reporter: Reporter) -> None:
    """Hold the memory until the time is up or the process is stopped, then report what was held.

    Raises:
        MisuseError: so much is not available.
        WorkloadError: the kernel refused it.
    """
    size_bytes = _choose_size(config, available_bytes())
    reporter.phase("warmup")
    resident_before_bytes = _resident_bytes()
    memory = hold(size_bytes)
    burn = _Burn(memory=memory)
    try:
        reporter.phase("measure")
        burn.go_on(config.stream, config.duration)
    finally:
        held_bytes = _resident_bytes() - resident_before_bytes
        seconds = time.perf_counter() - burn.began_seconds
        reporter.phase("teardown")
        reporter.result("asked_bytes", size_bytes, unit="bytes")
        reporter.result("held_bytes", held_bytes, unit="bytes")
        if config.stream:
            # Each byte that is copied is read once and written once.
            reporter.result("stream_bytes_per_second", 2 * burn.copied_bytes / seconds, unit="bytes/s")


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
    _fill(memory)
    return memory


def _fill(memory: mmap.mmap) -> None:
    """Write every block, on several CPUs at once: getting hundreds of gigabytes from the kernel takes one minutes."""
    # Noise, since a system that compresses what it swaps out would make nearly nothing of zeros.
    noise = os.urandom(BLOCK_BYTES)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    pool = ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), _MOST_WRITERS))
    try:
        # Unlike an assignment, memmove lets other threads run.
        starts = range(0, len(memory), BLOCK_BYTES)
        list(pool.map(lambda start: ctypes.memmove(address + start, noise, BLOCK_BYTES), starts))
    finally:
        pool.shutdown(cancel_futures=True)


@dataclass(slots=True, kw_only=True)
class _Burn:
    """What is done with the memory."""

    memory: mmap.mmap
    began_seconds: float = field(default_factory=time.perf_counter)
    copied_bytes: int = 0

    def go_on(self, stream: bool, duration_seconds: float | None) -> None:
        """Copy or do nothing until the time is up; None: for ever."""
        until_seconds = self.began_seconds + duration_seconds if duration_seconds else float("inf")
        while (left_seconds := until_seconds - time.perf_counter()) > 0:
            if stream:
                self._copy_once(until_seconds)
            else:
                time.sleep(min(left_seconds, _REST_SECONDS))

    def _copy_once(self, until_seconds: float) -> None:
        """Copy the first half onto the second, or what of it the time is enough for."""
        middle = len(self.memory) // BLOCK_BYTES // 2 * BLOCK_BYTES
        for start in range(0, middle, BLOCK_BYTES):
            self.memory.move(middle + start, start, BLOCK_BYTES)
            self.copied_bytes += BLOCK_BYTES
            if time.perf_counter() >= until_seconds:
                return


def available_bytes(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return what this process can have: what the kernel says is available, or less if a cgroup allows less.

    Args:
        proc: where procfs is.
        cgroups: where the cgroups are, of version 2 or 1.
    """
    host = re.search(r"^MemAvailable:\s+(\d+) kB$", (proc / "meminfo").read_text(encoding="ascii"), re.MULTILINE)
    left = [int(host[1]) * 1024] if host else []
    for line in (proc / "self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            left += _left_in(cgroups, path, "memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            left += _left_in(cgroups / "memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes")
    if not left:
        raise WorkloadError("the kernel does not say how much memory is available: give --bytes")
    return max(0, min(left))


def _left_in(mount: Path, path: str, limit_file: str, usage_file: str) -> list[int]:
    """Return what each of the nested cgroups still allows; in a container, only the outermost is there, as the root."""
    group = mount / path.lstrip("/")
    left = []
    for folder in (group, *group.parents):
        if not folder.is_relative_to(mount):
            break
        limit, usage = _read_number(folder / limit_file), _read_number(folder / usage_file)
        if limit is not None and usage is not None:
            left.append(limit - usage)
    return left


def _read_number(path: Path) -> int | None:
    """Return the number in a file; None: no such file, or `max`, which is no limit."""
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _choose_size(config: Config, available: int) -> int:
    """Return how much to hold, in whole blocks."""
    wanted = config.bytes if config.bytes is not None else int(available * config.percent / 100)
    if wanted > available:
        raise MisuseError(f"--bytes {wanted} is more than the {available} bytes that are available")
    blocks = wanted // BLOCK_BYTES
    if blocks < 2:
        raise MisuseError(f"only {available} bytes are available: that is too little to hold --percent of")
    return blocks * BLOCK_BYTES


def _resident_bytes() -> int:
    """Return what of this process is in memory, rather than swapped out or never touched."""
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
