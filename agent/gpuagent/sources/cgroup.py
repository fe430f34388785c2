"""The use and limits of control groups: the agent's own, which is its container's, and those of runs elsewhere."""

from collections.abc import Iterable, Sequence

from gpuagent.clock import Instant
from gpuagent.errors import SourceUnavailableError
from gpuagent.sources.source import Lane, Reading, SourceContext, Value
from gpuagent.sources.support.cgroups import (
    CpuUse,
    Mount,
    find_group,
    open_cpu,
    open_memory,
    parse_memberships,
    parse_mounts,
)
from gpuagent.sources.support.files import read_text
from gpuagent.sources.support.processes import read_process_file
from gpuagent.sources.support.rates import Rates, increase

# Of a run, until one is found in a group of its own; that one is near the first.
_MOST_PROCESSES = 16


class GroupReader:
    """A reader of the groups of one process, with the counters that the rates need."""

    def __init__(self, memberships_text: str, mounts: Sequence[Mount]) -> None:
        memberships = parse_memberships(memberships_text)
        cpu, accounting, memory = (find_group(name, memberships, mounts) for name in ("cpu", "cpuacct", "memory"))
        self.memberships_text = memberships_text
        self._cpu_path = next((group.path for group in (cpu, accounting) if group), None)
        self._memory_path = memory.path if memory else None
        self._cpu = open_cpu(cpu, accounting)
        self._memory = open_memory(memory)
        self._rates: Rates[str] = Rates()
        self._before: CpuUse | None = None

    @property
    def sees_anything(self) -> bool:
        """Return whether there is a group to read."""
        return self._cpu is not None or self._memory is not None

    def read(self, now: Instant) -> Iterable[dict[str, Value]]:
        """Yield columns of cgroup_samples with their path: in version 1, each controller may have another group."""
        if self._cpu is not None:
            before, self._before = self._before, self._cpu.read()
            yield {
                "path": self._cpu_path,
                "cpu_cores": self._rates.per_second({"used": self._before.used_seconds}, now).get("used"),
                "cpu_limit_cores": self._before.limit_cores,
                "cpu_throttled_percent": throttled_percent(before, self._before) if before else None,
            }
        if self._memory is not None:
            memory = self._memory.read()
            yield {
                "path": self._memory_path,
                "memory_used_bytes": memory.used_bytes,
                "memory_anonymous_bytes": memory.anonymous_bytes,
                "memory_file_bytes": memory.file_bytes,
                "memory_limit_bytes": memory.limit_bytes,
                "oom_kills": memory.oom_kills,
            }

    def close(self) -> None:
        """Close the groups' files."""
        for files in (self._cpu, self._memory):
            if files is not None:
                files.close()


def throttled_percent(before: CpuUse, after: CpuUse) -> float | None:
    """Return the share of the periods between two readings in which the group was throttled, in percent."""
    periods = increase(before.periods, after.periods)
    throttled = increase(before.throttled_periods, after.throttled_periods)
    return 100 * throttled / periods if periods and throttled is not None else None


class Cgroup:
    """CPU, throttling, memory, limits and OOM kills of control groups."""

    name = "cgroup"
    lane = Lane.FAST
    # memory.stat makes the kernel add up counters of all CPUs, 0.7 ms for 16.
    max_rate_hz = 0.5

    def __init__(self, context: SourceContext) -> None:
        self._proc = context.proc
        self._runs = context.runs
        self._mounts = parse_mounts(read_text(context.proc / "self/mountinfo") or "")
        self._readers: dict[str | None, GroupReader] = {}
        own = self._reader(None, read_text(context.proc / "self/cgroup") or "")
        if not own.sees_anything:
            self.close()
            raise SourceUnavailableError("no control group is visible", "mount /sys/fs/cgroup into the container")

    def read(self, now: Instant) -> Iterable[Reading]:
        """Yield the agent's group, and those of runs that are in another."""
        # The /proc/PID/cgroup of the agent (None) and of those runs that are in other groups.
        own = read_text(self._proc / "self/cgroup") or self._readers[None].memberships_text
        memberships: dict[str | None, str] = {None: own}
        for active, pid in self._runs.processes():
            if other := self._other_group(pid, own):
                memberships[active] = other
        for gone in self._readers.keys() - memberships.keys():
            self._readers.pop(gone).close()
        for run_id, text in memberships.items():
            for values in self._reader(run_id, text).read(now):
                key = f"{run_id} {values['path']}"
                yield Reading(table="cgroup_samples", key=key, values={"run_id": run_id, **values})

    def _other_group(self, root: int, own: str) -> str | None:
        """Return the /proc/PID/cgroup of a run; None: it is in the agent's `own` groups.

        Apptainer moves only the program into a group of its own, not the program's parent.
        """
        waiting = [root]
        for pid in waiting:
            text = read_process_file(self._proc, pid, "cgroup")
            if text and text != own:
                return text
            if len(waiting) < _MOST_PROCESSES:
                children = read_process_file(self._proc, pid, f"task/{pid}/children") or ""
                waiting.extend(int(child) for child in children.split())
        return None

    def _reader(self, run_id: str | None, memberships_text: str) -> GroupReader:
        """Return the reader of a run's groups; a new one where the run was moved to others."""
        reader = self._readers.get(run_id)
        if reader is None or reader.memberships_text != memberships_text:
            if reader is not None:
                reader.close()
            reader = self._readers[run_id] = GroupReader(memberships_text, self._mounts)
        return reader

    def close(self) -> None:
        """Close all groups' files."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
