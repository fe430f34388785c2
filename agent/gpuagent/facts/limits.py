"""What of the node the agent may use."""

from collections.abc import Iterable
from dataclasses import dataclass

from gpuagent.facts.surroundings import Surroundings
from gpuagent.sources.support.cgroup_files import open_cpu, open_memory
from gpuagent.sources.support.cgroups import find_group, parse_memberships, parse_mounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The agent's share of the node; None is no limit."""

    cpu_cores: float | None
    memory_bytes: int | None


def collect_limits(surroundings: Surroundings, *, cpu_threads: int | None) -> Limits:
    """Return the limits of the agent's control groups.

    The limit on CPU is the smaller of the quota, as containers have it, and of the CPUs that the agent may run on, as
    Slurm hands them out.
    """
    memberships = parse_memberships(surroundings.proc_text("self/cgroup"))
    mounts = parse_mounts(surroundings.proc_text("self/mountinfo"))
    cpu = open_cpu(find_group("cpu", memberships, mounts), None)
    memory = open_memory(find_group("memory", memberships, mounts))
    try:
        quota = cpu.read().limit_cores if cpu else None
        memory_bytes = memory.read().limit_bytes if memory else None
    finally:
        for files in (cpu, memory):
            if files:
                files.close()
    allowed = allowed_cpus(surroundings.proc_text("self/status"))
    is_subset = allowed is not None and cpu_threads is not None and allowed < cpu_threads
    return Limits(cpu_cores=_smallest((quota, allowed if is_subset else None)), memory_bytes=memory_bytes)


def allowed_cpus(status: str) -> int | None:
    """Return on how many CPUs a process may run, from the Cpus_allowed_list of its /proc/PID/status."""
    for line in status.splitlines():
        name, _, cpus = line.partition(":")
        if name == "Cpus_allowed_list":
            return count_cpus(cpus)
    return None


def count_cpus(cpus: str) -> int | None:
    """Return how many CPUs a list such as 0-3,8 names; None where it is no such list."""
    count = 0
    for part in cpus.strip().split(","):
        first, _, last = part.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            return None
        count += int(last or first) - int(first) + 1
    return count


def _smallest(limits: Iterable[float | None]) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None)
