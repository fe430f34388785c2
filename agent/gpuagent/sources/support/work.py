"""Processes that belong together, such as those of a job or of one of its steps, and what they use."""

import os
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from gpuagent.sources.process_tree import RisingSum, tree_use
from gpuagent.sources.support.cgroups import (
    Group,
    MemoryUse,
    Mount,
    find_group,
    open_cpu,
    open_memory,
    parse_memberships,
)
from gpuagent.sources.support.files import parse_flat, parse_number, read_text
from gpuagent.sources.support.units import cut_path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Groups:
    """The control groups of an owner, read without staying open: a node may have hundreds."""

    cpu: Group | None
    accounting: Group | None
    memory: Group | None

    @classmethod
    def find(cls, memberships_text: str, folder: str | None, mounts: Sequence[Mount]) -> "Groups | None":
        """Return the groups of the unit with this group's folder; None: none is visible."""
        if folder is None:
            return None
        cut = {name: cut_path(path, folder) for name, path in parse_memberships(memberships_text).items()}
        known = {name: path for name, path in cut.items() if path is not None}
        found = [find_group(name, known, mounts) for name in ("cpu", "cpuacct", "memory")]
        return cls(*found) if any(found) else None

    @property
    def inode(self) -> int | None:
        """Return the number of the group's folder, which a later group of this name does not have."""
        group = self.accounting or self.cpu or self.memory
        try:
            return group.directory.stat().st_ino if group else None
        except OSError:
            return None

    def read_cpu_seconds(self) -> float | None:
        """Return the CPU time; None: it is not visible."""
        if self.accounting is not None and not self.accounting.is_v2:
            nanoseconds = parse_number(read_text(self.accounting.directory / "cpuacct.usage"))
            return None if nanoseconds is None else nanoseconds / 1e9
        group = self.cpu or self.accounting
        micros = parse_flat(read_text(group.directory / "cpu.stat")).get("usage_usec") if group else None
        return None if micros is None else micros / 1e6

    def read_limit_cores(self) -> float | None:
        """Return the CPUs that it may use at most; None: unlimited, or not visible."""
        files = open_cpu(self.cpu, self.accounting)
        if files is None:
            return None
        with closing(files):
            return files.read().limit_cores

    def read_memory(self) -> MemoryUse | None:
        """Return the memory and its limit; None: they are not visible."""
        files = open_memory(self.memory)
        if files is None:
            return None
        with closing(files):
            return files.read()


@dataclass(slots=True, kw_only=True)
class Work:
    """Processes that belong together: their group if it is visible, and their counters."""

    groups: Groups | None
    started_unix_nano: int
    seen_seconds: float
    pids: set[int] = field(default_factory=set)
    # CPU time of processes that have ended without a parent that waited.
    rising: RisingSum = field(default_factory=RisingSum)
    cpu_seconds: float | None = None
    memory_bytes: int | None = None
    memory_max_bytes: int | None = None
    # CPU ticks and memory of its processes, where the last look was at them.
    of_processes: tuple[int, int] | None = None

    def read_use(self, proc: Path, parts: Collection["Work"] = (), *, with_memory: bool) -> MemoryUse | None:
        """Read the CPU time and, `with_memory`, the memory without page cache: of its group, else of its processes.

        The processes of `parts`, which were just read, are not read again. Returns what the group says of memory.
        """
        used_seconds = self.groups.read_cpu_seconds() if self.groups else None
        memory = self.groups.read_memory() if self.groups and with_memory else None
        self.of_processes = None
        if used_seconds is None or (with_memory and memory is None):
            self.of_processes = self._read_processes(proc, parts)
        if used_seconds is None and self.of_processes:
            used_seconds = (self.rising.follow(self.of_processes[0]) or 0) / _TICKS_PER_SECOND
        # A group that has just been removed has no time left to read.
        self.cpu_seconds = max(used_seconds or 0.0, self.cpu_seconds or 0.0)
        if with_memory:
            self.memory_bytes = memory.anonymous_bytes if memory else (self.of_processes or (0, 0))[1]
            self.memory_max_bytes = max(filter(None, (self.memory_bytes, self.memory_max_bytes)), default=None)
        return memory

    def _read_processes(self, proc: Path, parts: Collection["Work"]) -> tuple[int, int]:
        ticks = memory_bytes = 0
        rest = set(self.pids)
        for part in parts:
            if part.of_processes is not None:
                ticks += part.of_processes[0]
                memory_bytes += part.of_processes[1]
                rest -= part.pids
        use = tree_use(proc, rest, None)
        return ticks + use.cpu_ticks, memory_bytes + use.anonymous_bytes


@dataclass(slots=True, kw_only=True)
class Step(Work):
    """One step of a job of Slurm on this node: a number, `batch`, `extern` or `interactive`."""

    name: str
    # Those that its processes were on, and whether GPUs are listed with their processes at all.
    gpus: set[str] = field(default_factory=set)
    sees_gpus: bool = False
    is_recorded: bool = False
