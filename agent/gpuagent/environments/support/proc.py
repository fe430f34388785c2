"""A run's processes, found from outside by the variable that all of them have."""

import contextlib
import os
from collections.abc import Iterator

import psutil


def has_run(pid: int, run_id: str) -> bool:
    """Return whether a process belongs to a run; its number alone may be another process's in another namespace."""
    try:
        return psutil.Process(pid).environ().get("GPUAGENT_RUN_ID") == run_id
    except (psutil.Error, OSError):
        return False


def iterate_outside(run_id: str, agent: int | None = None) -> Iterator[tuple[int, list[psutil.Process]]]:
    """Yield each process of a run that is no descendant of the agent, with its ancestors, the nearest first.

    The agent's own descendants are the clients that asked others to start the run.
    """
    agent = agent or os.getpid()
    for pid in psutil.pids():
        if has_run(pid, run_id):
            with contextlib.suppress(psutil.Error, OSError, RuntimeError):
                ancestors = psutil.Process(pid).parents()
                if all(ancestor.pid != agent for ancestor in ancestors):
                    yield pid, ancestors


def read_name(process: psutil.Process) -> str:
    """Return the name of a process, "" where it is gone."""
    try:
        return process.name()
    except (psutil.Error, OSError):
        return ""
