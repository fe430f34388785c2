"""Limits where nothing contains a process, and the refusal of those that cannot be enforced."""

import os

from gpuagent.environments.support.clients import need_program
from gpuagent_common.errors import MisuseError
from gpuagent_common.limits import Limits


def refuse_changes(environment: str, limits: Limits) -> None:
    """Refuse changes during the run.

    Raises:
        MisuseError: `limits` hold some.
    """
    if limits.changes:
        raise MisuseError(f"{environment} cannot change the CPUs of a running program; docker and podman can")


def whole_cpus(environment: str, limits: Limits) -> int | None:
    """Return the number of CPUs; None: no limit.

    Raises:
        MisuseError: it is not whole.
    """
    if limits.cpus is None:
        return None
    if limits.cpus % 1:
        raise MisuseError(f"{environment} gives whole CPUs only, not {limits.cpus:g}; docker and podman give parts")
    return int(limits.cpus)


def check_pinned(environment: str, limits: Limits) -> None:
    """Check that `pin_command` can enforce the limits.

    Raises:
        MisuseError: it cannot.
        EnvironmentUnavailableError: taskset is missing.
    """
    if limits.memory_bytes is not None:
        raise MisuseError(f"{environment} cannot limit memory; docker, podman, apptainer, slurm and kubernetes can")
    refuse_changes(environment, limits)
    cpus = whole_cpus(environment, limits)
    if cpus is None:
        return
    need_program("taskset", "install util-linux, or omit --cpus")
    allowed = len(os.sched_getaffinity(0))
    if cpus > allowed:
        raise MisuseError(f"the agent itself may use {allowed} CPUs, not cpus={cpus}; ask for fewer")


def pin_command(limits: Limits) -> list[str]:
    """Return the command before a program that binds it to the first CPUs of the agent; empty: no limit."""
    if limits.cpus is None:
        return []
    chosen = sorted(os.sched_getaffinity(0))[: int(limits.cpus)]
    return ["taskset", "--cpu-list", ",".join(map(str, chosen))]


def limit_options(limits: Limits) -> list[str]:
    """Return the options of container runtimes that enforce `limits`.

    Swap counts as memory: a program that swaps would measure the disk.
    """
    options = [] if limits.cpus is None else [f"--cpus={limits.cpus:g}"]
    if limits.memory_bytes is not None:
        options += [f"--memory={limits.memory_bytes}", f"--memory-swap={limits.memory_bytes}"]
    return options
