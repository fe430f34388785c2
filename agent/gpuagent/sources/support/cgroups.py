"""A process's control groups, in version 1, version 2 and both at once, inside containers and outside."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gpuagent.sources.support.files import OptionalFile, exists, parse_flat, parse_number

# The name of the hierarchy of version 2, which holds all its controllers, in /proc/PID/cgroup and here.
V2 = ""

# Version 1 writes "no limit" as the largest number of whole pages below 2^63.
_V1_UNLIMITED_BYTES = 1 << 62


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
    """Memory of a group; None where the kernel does not count it, and for a limit where there is none."""

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


class CpuV2(_GroupFiles):
    """CPU in version 2; the limit is the tightest of the group and its visible ancestors."""

    def __init__(self, group: Group) -> None:
        super().__init__()
        self._stat = self._open(group.directory, "cpu.stat")
        self._limits = [self._open(directory, "cpu.max") for directory in group.lineage()]

    def read(self) -> CpuUse:
        """Return the group's use and limit."""
        stat = parse_flat(self._stat.read())
        limits = (parse_cpu_max(file.read()) for file in self._limits)
        return CpuUse(
            used_seconds=_divide(stat.get("usage_usec"), 1e6),
            periods=stat.get("nr_periods"),
            throttled_periods=stat.get("nr_throttled"),
            limit_cores=min(filter(None, limits), default=None),
        )


class CpuV1(_GroupFiles):
    """CPU in version 1, where accounting is a controller of its own."""

    def __init__(self, cpu: Group | None, accounting: Group | None) -> None:
        super().__init__()
        self._stat = self._open(cpu.directory if cpu else None, "cpu.stat")
        self._usage = self._open(accounting.directory if accounting else None, "cpuacct.usage")
        self._limits = [
            (self._open(directory, "cpu.cfs_quota_us"), self._open(directory, "cpu.cfs_period_us"))
            for directory in (cpu.lineage() if cpu else ())
        ]

    def read(self) -> CpuUse:
        """Return the groups' use and limit."""
        stat = parse_flat(self._stat.read())
        limits = (_divide(parse_number(quota.read()), parse_number(period.read())) for quota, period in self._limits)
        return CpuUse(
            used_seconds=_divide(parse_number(self._usage.read()), 1e9),
            periods=stat.get("nr_periods"),
            throttled_periods=stat.get("nr_throttled"),
            limit_cores=min(filter(None, limits), default=None),
        )


class MemoryV2(_GroupFiles):
    """Memory in version 2; the limit is the tightest of the group and its visible ancestors."""

    def __init__(self, group: Group) -> None:
        super().__init__()
        names = ("memory.current", "memory.stat", "memory.events")
        self._current, self._stat, self._events = (self._open(group.directory, name) for name in names)
        self._limits = [self._open(directory, "memory.max") for directory in group.lineage()]

    def read(self) -> MemoryUse:
        """Return the group's use and limit."""
        stat = parse_flat(self._stat.read())
        limits = (parse_number(file.read()) for file in self._limits)
        return MemoryUse(
            used_bytes=parse_number(self._current.read()),
            anonymous_bytes=stat.get("anon"),
            file_bytes=stat.get("file"),
            limit_bytes=min((limit for limit in limits if limit is not None), default=None),
            oom_kills=parse_flat(self._events.read()).get("oom_kill"),
        )


class MemoryV1(_GroupFiles):
    """Memory in version 1, which computes the tightest limit of all ancestors itself."""

    def __init__(self, group: Group) -> None:
        super().__init__()
        names = ("memory.usage_in_bytes", "memory.stat", "memory.oom_control")
        self._usage, self._stat, self._oom = (self._open(group.directory, name) for name in names)

    def read(self) -> MemoryUse:
        """Return the group's use and limit."""
        stat = parse_flat(self._stat.read())
        limit = stat.get("hierarchical_memory_limit")
        return MemoryUse(
            used_bytes=parse_number(self._usage.read()),
            anonymous_bytes=stat.get("total_rss"),
            file_bytes=stat.get("total_cache"),
            limit_bytes=limit if limit is not None and limit < _V1_UNLIMITED_BYTES else None,
            oom_kills=parse_flat(self._oom.read()).get("oom_kill"),
        )


def open_cpu(cpu: Group | None, accounting: Group | None) -> CpuV1 | CpuV2 | None:
    """Open the files about CPU of a process's groups; None where the agent can see neither group."""
    if cpu is not None and cpu.is_v2:
        return CpuV2(cpu)
    return CpuV1(cpu, accounting) if cpu or accounting else None


def open_memory(group: Group | None) -> MemoryV1 | MemoryV2 | None:
    """Open the files about memory of a process's group; None where the agent cannot see it."""
    if group is None:
        return None
    return MemoryV2(group) if group.is_v2 else MemoryV1(group)
