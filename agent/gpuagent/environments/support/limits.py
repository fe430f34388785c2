"""How limits are kept where nothing contains a process, and how those are refused that cannot be."""

import os

from gpuagent.environments.support.clients import need_program
from gpuagent_common.errors import MisuseError
from gpuagent_common.limits import Limits


def refuse_memory(environment: str, limits: Limits) -> None:
    """Refuse a limit of memory.

    Raises:
        MisuseError: there is one.
    """
    if limits.memory_bytes is not None:
        raise MisuseError(f"{environment} cannot limit memory; docker, podman, apptainer, slurm and kubernetes can")


def refuse_changes(environment: str, limits: Limits) -> None:
    """Refuse changes while the run goes on.

    Raises:
        MisuseError: there are some.
    """
    if limits.changes:
        raise MisuseError(f"{environment} cannot change the CPUs of what runs already; docker and podman can")


def whole_cpus(environment: str, limits: Limits) -> int | None:
    """Return how many CPUs are asked for, None for no limit.

    Raises:
        MisuseError: it is no whole number.
    """
    if limits.cpus is None:
        return None
    if limits.cpus % 1:
        raise MisuseError(f"{environment} gives whole CPUs only, not {limits.cpus:g}; docker and podman give parts")
    return int(limits.cpus)


def check_pinned(environment: str, limits: Limits) -> None:
    """See that `pinned` can keep the limits.

    Raises:
        MisuseError: it cannot.
        EnvironmentUnavailableError: there is no taskset.
    """
    refuse_memory(environment, limits)
    refuse_changes(environment, limits)
    cpus = whole_cpus(environment, limits)
    if cpus is None:
        return
    need_program("taskset", "install util-linux, or leave --cpus out")
    allowed = len(os.sched_getaffinity(0))
    if cpus > allowed:
        raise MisuseError(f"the agent itself may use {allowed} CPUs, and cpus={cpus} was asked for")


def pinned(limits: Limits) -> list[str]:
    """Return what starts a program on so many CPUs, the first of those that the agent may use; nothing: on all."""
    if limits.cpus is None:
        return []
    chosen = sorted(os.sched_getaffinity(0))[: int(limits.cpus)]
    return ["taskset", "--cpu-list", ",".join(map(str, chosen))]


def limit_options(limits: Limits) -> list[str]:
    """Return the options of container runtimes that keep `limits`.

    Swap counts as memory: a program that swaps would measure the disk.
    """
    options = [] if limits.cpus is None else [f"--cpus={limits.cpus:g}"]
    if limits.memory_bytes is not None:
        options += [f"--memory={limits.memory_bytes}", f"--memory-swap={limits.memory_bytes}"]
    return options
