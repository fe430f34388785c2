"""What the files of control groups tell about CPU and memory."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gpuagent.sources.support.cgroups import Group
from gpuagent.sources.support.files import OptionalFile, parse_flat

# Version 1 says "no limit" with the largest number of whole pages below 2^63.
_V1_UNLIMITED_BYTES = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUse:
    """CPU of a group since it exists; None where the kernel does not tell."""

    used_seconds: float | None
    periods: int | None
    throttled_periods: int | None
    limit_cores: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Memory of a group; None where the kernel does not tell, and for a limit where there is none."""

    used_bytes: int | None
    anonymous_bytes: int | None
    file_bytes: int | None
    limit_bytes: int | None
    oom_kills: int | None


class CpuFiles(Protocol):
    """The files about CPU of a group, kept open."""

    def read(self) -> CpuUse:
        """Return what they tell."""
        ...

    def close(self) -> None:
        """Close them."""
        ...


class MemoryFiles(Protocol):
    """The files about memory of a group, kept open."""

    def read(self) -> MemoryUse:
        """Return what they tell."""
        ...

    def close(self) -> None:
        """Close them."""
        ...


def parse_number(text: str | None) -> int | None:
    """Return the number of a file that holds nothing else; None for `max`, -1 and what is no number."""
    number = (text or "").strip()
    return int(number) if number.isascii() and number.isdigit() else None


def parse_cpu_max(text: str | None) -> float | None:
    """Return the limit in cores of a cpu.max such as `150000 100000`; None for `max 100000`."""
    quota, _, period = (text or "").partition(" ")
    return quotient(parse_number(quota), parse_number(period))


def quotient(quota: float | None, period: float | None) -> float | None:
    """Return quota by period, None where either is missing or nothing."""
    return quota / period if quota and period else None


def _smallest(limits: list[float | None]) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _divided(number: int | None, divisor: float) -> float | None:
    return None if number is None else number / divisor


class CpuV2:
    """CPU in version 2; the limit is the tightest of the group and its visible ancestors."""

    def __init__(self, group: Group) -> None:
        self._stat = OptionalFile(group.directory / "cpu.stat")
        self._limits = [OptionalFile(directory / "cpu.max") for directory in group.lineage()]

    def read(self) -> CpuUse:
        """Return what the files tell."""
        stat = parse_flat(self._stat.read() or "")
        return CpuUse(
            used_seconds=_divided(stat.get("usage_usec"), 1e6),
            periods=stat.get("nr_periods"),
            throttled_periods=stat.get("nr_throttled"),
            limit_cores=_smallest([parse_cpu_max(file.read()) for file in self._limits]),
        )

    def close(self) -> None:
        """Close the files."""
        for file in (self._stat, *self._limits):
            file.close()


class CpuV1:
    """CPU in version 1, where accounting is a controller of its own."""

    def __init__(self, cpu: Group | None, accounting: Group | None) -> None:
        lineage = cpu.lineage() if cpu else []
        self._stat = OptionalFile(_file(cpu, "cpu.stat"))
        self._usage = OptionalFile(_file(accounting, "cpuacct.usage"))
        self._limits = [
            (OptionalFile(directory / "cpu.cfs_quota_us"), OptionalFile(directory / "cpu.cfs_period_us"))
            for directory in lineage
        ]

    def read(self) -> CpuUse:
        """Return what the files tell."""
        stat = parse_flat(self._stat.read() or "")
        limits = [quotient(parse_number(quota.read()), parse_number(period.read())) for quota, period in self._limits]
        return CpuUse(
            used_seconds=_divided(parse_number(self._usage.read()), 1e9),
            periods=stat.get("nr_periods"),
            throttled_periods=stat.get("nr_throttled"),
            limit_cores=_smallest(limits),
        )

    def close(self) -> None:
        """Close the files."""
        for file in (self._stat, self._usage, *(file for pair in self._limits for file in pair)):
            file.close()


class MemoryV2:
    """Memory in version 2; the limit is the tightest of the group and its visible ancestors."""

    def __init__(self, group: Group) -> None:
        self._current = OptionalFile(group.directory / "memory.current")
        self._stat = OptionalFile(group.directory / "memory.stat")
        self._events = OptionalFile(group.directory / "memory.events")
        self._limits = [OptionalFile(directory / "memory.max") for directory in group.lineage()]

    def read(self) -> MemoryUse:
        """Return what the files tell."""
        stat = parse_flat(self._stat.read() or "")
        limits = [limit for file in self._limits if (limit := parse_number(file.read())) is not None]
        return MemoryUse(
            used_bytes=parse_number(self._current.read()),
            anonymous_bytes=stat.get("anon"),
            file_bytes=stat.get("file"),
            limit_bytes=min(limits, default=None),
            oom_kills=parse_flat(self._events.read() or "").get("oom_kill"),
        )

    def close(self) -> None:
        """Close the files."""
        for file in (self._current, self._stat, self._events, *self._limits):
            file.close()


class MemoryV1:
    """Memory in version 1, which tells the tightest limit of all ancestors itself."""

    def __init__(self, group: Group) -> None:
        self._usage = OptionalFile(group.directory / "memory.usage_in_bytes")
        self._stat = OptionalFile(group.directory / "memory.stat")
        self._oom = OptionalFile(group.directory / "memory.oom_control")

    def read(self) -> MemoryUse:
        """Return what the files tell."""
        stat = parse_flat(self._stat.read() or "")
        limit = stat.get("hierarchical_memory_limit")
        return MemoryUse(
            used_bytes=parse_number(self._usage.read()),
            anonymous_bytes=stat.get("total_rss"),
            file_bytes=stat.get("total_cache"),
            limit_bytes=limit if limit is not None and limit < _V1_UNLIMITED_BYTES else None,
            oom_kills=parse_flat(self._oom.read() or "").get("oom_kill"),
        )

    def close(self) -> None:
        """Close the files."""
        for file in (self._usage, self._stat, self._oom):
            file.close()


def _file(group: Group | None, name: str) -> Path | None:
    return group.directory / name if group else None


def open_cpu(cpu: Group | None, accounting: Group | None) -> CpuFiles | None:
    """Open the files about CPU of a process's groups; None where neither group can be seen."""
    if cpu is not None and cpu.is_v2:
        return CpuV2(cpu)
    return CpuV1(cpu, accounting) if cpu or accounting else None


def open_memory(group: Group | None) -> MemoryFiles | None:
    """Open the files about memory of a process's group; None where it cannot be seen."""
    if group is None:
        return None
    return MemoryV2(group) if group.is_v2 else MemoryV1(group)
