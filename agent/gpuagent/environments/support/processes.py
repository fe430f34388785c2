"""A run's processes, found from outside by the variable that all of them have."""

import contextlib
import os
from collections.abc import Iterator, Sequence

import psutil

# psutil lets some errors of the kernel pass.
_GONE_OR_HIDDEN = (psutil.Error, OSError)


def has_run(pid: int, run_id: str) -> bool:
    """Return whether a process belongs to a run; another process may have its number in another namespace."""
    try:
        return psutil.Process(pid).environ().get("GPUAGENT_RUN_ID") == run_id
    except _GONE_OR_HIDDEN:
        return False


def find_processes(run_id: str, agent: int | None = None) -> Iterator[tuple[int, Sequence[tuple[int, str]]]]:
    """Yield each process of a run that does not descend from the agent: its number, its ancestors' numbers and names.

    The nearest ancestor comes first. The agent's descendants are only the clients that asked others to start the run.
    """
    for process in psutil.process_iter():
        with contextlib.suppress(*_GONE_OR_HIDDEN):
            if process.environ().get("GPUAGENT_RUN_ID") == run_id:
                ancestors = [(parent.pid, parent.name()) for parent in process.parents()]
                if (agent or os.getpid()) not in (pid for pid, _ in ancestors):
                    yield process.pid, ancestors
