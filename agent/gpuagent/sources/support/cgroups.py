"""A process's control groups, in version 1, version 2 and both at once, inside containers and outside."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gpuagent.sources.support.files import OptionalFile, exists, parse_flat, parse_number

# The name of the hierarchy of version 2, which holds all its controllers, in /proc/PID/cgroup and here.
V2 = ""

# Version 1 writes "no limit" as the largest number of whole pages below 2^63.
_UNLIMITED_BYTES = 1 << 62

# The files of the use and of OOM kills, and the names of anonymous memory and file cache in memory.stat.
_V1_MEMORY = ("memory.usage_in_bytes", "memory.oom_control", "total_rss", "total_cache")
_V2_MEMORY = ("memory.current", "memory.events", "anon", "file")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A mounted hierarchy: `point` shows its group `root`."""

    controllers: frozenset[str]
    root: str
    point: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A control group in one hierarchy."""

    path: str
    directory: Path
    top: Path
    is_v2: bool

    def lineage(self) -> list[Path]:
        """Return the group's directory and those of its visible ancestors: each may set a limit."""
        return [self.directory, *(parent for parent in self.directory.parents if parent.is_relative_to(self.top))]


def parse_memberships(text: str) -> dict[str, str]:
    """Return the group of each controller from a /proc/PID/cgroup; version 2 goes by the name `V2`."""
    memberships: dict[str, str] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if colon and path.startswith("/") and number.isdecimal():
            memberships.update(dict.fromkeys(controllers.split(","), path))
    return memberships


def parse_mounts(text: str) -> list[Mount]:
    """Return the cgroup hierarchies among the mounts of a /proc/PID/mountinfo; psutil leaves out their roots."""
    mounts: list[Mount] = []
    for line in text.splitlines():
        left, dash, right = line.partition(" - ")
        before, after = left.split(" "), right.split(" ")
        if not dash or len(before) < 6 or len(after) < 3 or after[0] not in {"cgroup", "cgroup2"}:
            continue
        controllers = {V2} if after[0] == "cgroup2" else set(after[2].split(","))
        point = Path(_unescape(before[4]))
        mounts.append(Mount(controllers=frozenset(controllers), root=_unescape(before[3]), point=point))
    return mounts


def _unescape(field: str) -> str:
    """Return a field of mountinfo, where a backslash and three octal digits replace spaces and their like."""
    return re.sub(r"\\([0-3][0-7]{2})", lambda match: chr(int(match[1], 8)), field)


def find_group(controller: str, memberships: Mapping[str, str], mounts: Iterable[Mount]) -> Group | None:
    """Return a process's group for `controller`, or None where it has none or the agent cannot see it."""
    # A controller that version 1 holds is not in version 2; both may be mounted.
    name = controller if controller in memberships else V2
    if name not in memberships:
        return None
    path = PurePosixPath(memberships[name])
    if ".." in path.parts:
        return None
    for mount in mounts:
        if name in mount.controllers and path.is_relative_to(mount.root):
            directory = mount.point / path.relative_to(mount.root)
            if exists(directory):
                return Group(path=memberships[name], directory=directory, top=mount.point, is_v2=name == V2)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUse:
    """CPU of a group since it exists; None where the kernel does not count it."""

    used_seconds: float | None
    periods: int | None
    throttled_periods: int | None
    limit_cores: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Memory of a group; None where the kernel does not count it, and for no limit."""

    used_bytes: int | None
    anonymous_bytes: int | None
    file_bytes: int | None
    limit_bytes: int | None
    oom_kills: int | None


def parse_cpu_max(text: str | None) -> float | None:
    """Return the limit in cores of a cpu.max such as `150000 100000`; None for `max 100000`."""
    quota, _, period = (text or "").partition(" ")
    return _divide(parse_number(quota), parse_number(period)) or None


def _divide(number: float | None, divisor: float | None) -> float | None:
    return None if number is None or not divisor else number / divisor


class _GroupFiles:
    """Files of control groups, kept open."""

    def __init__(self) -> None:
        self._opened: list[OptionalFile] = []

    def _open(self, directory: Path | None, name: str) -> OptionalFile:
        file = OptionalFile(directory / name if directory else None)
        self._opened.append(file)
        return file

    def close(self) -> None:
        """Close the files."""
        for file in self._opened:
            file.close()


class CpuFiles(_GroupFiles):
    """The CPU files of a process's groups; the limit is the tightest of the group and its visible ancestors."""

    def __init__(self, cpu: Group | None, accounting: Group | None) -> None:
        super().__init__()
        self._stat = self._open(cpu.directory if cpu else None, "cpu.stat")
        # In version 1, accounting is a controller of its own, and a limit has two files.
        self._usage = self._open(accounting.directory if accounting else None, "cpuacct.usage")
        names = ("cpu.max",) if cpu and cpu.is_v2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        lineage = cpu.lineage() if cpu else ()
        self._limits = [[self._open(directory, name) for name in names] for directory in lineage]

    def read(self) -> CpuUse:
        """Return the groups' use and limit."""
        stat = parse_flat(self._stat.read())
        used_seconds = _divide(stat.get("usage_usec"), 1e6)
        limits = (parse_cpu_max(" ".join(file.read() or "" for file in files)) for files in self._limits)
        return CpuUse(
            used_seconds=_divide(parse_number(self._usage.read()), 1e9) if used_seconds is None else used_seconds,
            periods=stat.get("nr_periods"),
            throttled_periods=stat.get("nr_throttled"),
            limit_cores=min(filter(None, limits), default=None),
        )


class MemoryFiles(_GroupFiles):
    """The memory files of a process's group; the limit is the tightest of the group and its visible ancestors."""

    def __init__(self, group: Group) -> None:
        super().__init__()
        used, events, self._anonymous, self._cache = _V2_MEMORY if group.is_v2 else _V1_MEMORY
        self._stat = self._open(group.directory, "memory.stat")
        self._used, self._events = self._open(group.directory, used), self._open(group.directory, events)
        self._limits = [self._open(directory, "memory.max") for directory in group.lineage()]

    def read(self) -> MemoryUse:
        """Return the group's use and limit."""
        stat = parse_flat(self._stat.read())
        # Version 1 has no memory.max, but computes the tightest limit itself.
        limits = [stat.get("hierarchical_memory_limit"), *(parse_number(file.read()) for file in self._limits)]
        known = [limit for limit in limits if limit is not None and limit < _UNLIMITED_BYTES]
        return MemoryUse(
            used_bytes=parse_number(self._used.read()),
            anonymous_bytes=stat.get(self._anonymous),
            file_bytes=stat.get(self._cache),
            limit_bytes=min(known, default=None),
            oom_kills=parse_flat(self._events.read()).get("oom_kill"),
        )


def open_cpu(cpu: Group | None, accounting: Group | None) -> CpuFiles | None:
    """Open the files about CPU of a process's groups; None where the agent can see neither group."""
    return CpuFiles(cpu, accounting) if cpu or accounting else None


def open_memory(group: Group | None) -> MemoryFiles | None:
    """Open the files about memory of a process's group; None where the agent cannot see it."""
    return MemoryFiles(group) if group else None
