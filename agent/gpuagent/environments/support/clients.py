"""Calls of the command-line clients of container runtimes."""

import shutil
import subprocess
from collections.abc import Sequence

from gpuagent.environments.environment import EnvironmentUnavailableError

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
