"""Finds a run's processes from outside, by the variable that all of them have."""

import os
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")


def has_run(pid: int, run_id: str, proc: Path = PROC) -> bool:
    """Return whether a process is of a run, as its variables say; others may have its number in another namespace."""
    try:
        return f"GPUAGENT_RUN_ID={run_id}".encode() in (proc / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def of_run(run_id: str, proc: Path = PROC, agent: int | None = None) -> Iterator[tuple[int, list[int]]]:
    """Yield each process of a run that is no descendant of the agent, with its ancestors, the nearest first.

    The agent's own are the clients that others started the run for.
    """
    agent = agent or os.getpid()
    for pid in (int(path.name) for path in proc.iterdir() if path.name.isdecimal()):
        if has_run(pid, run_id, proc) and agent not in (above := list(_ancestors(proc, pid))):
            yield pid, above


def name_of(pid: int, proc: Path = PROC) -> str:
    """Return the name of a process, "" where it is gone."""
    return _text(proc / str(pid) / "comm").strip()


def _ancestors(proc: Path, pid: int) -> Iterator[int]:
    while pid := int((_text(proc / str(pid) / "stat").rpartition(")")[2].split() or ["", "0"])[1]):
        yield pid


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
