"""Calls of the command-line clients of container runtimes."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence

import psutil

from gpuagent.environments.environment import EnvironmentUnavailableError

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


# A silent runtime hangs. Podman's first call of a user may take seconds.
_ANSWER_SECONDS = 30.0


class ClientError(Exception):
    """A client failed: the last line of its standard error."""


def ask_client(command: Sequence[str]) -> str:
    """Return the output of a client.

    Raises:
        ClientError: it failed, or did not answer.
    """
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ClientError(f"no answer within {_ANSWER_SECONDS:.0f} s") from error
    except OSError as error:
        raise ClientError(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise ClientError(last_line(done.stderr) or f"it ended with exit code {done.returncode}")
    return done.stdout


def need_program(program: str, remedy: str) -> None:
    """Check that a program exists.

    Raises:
        EnvironmentUnavailableError: it does not.
    """
    if not shutil.which(program):
        raise EnvironmentUnavailableError(f"there is no program {program!r}", remedy)


def last_line(text: str) -> str:
    """Return the last line of `text` that is not blank."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
