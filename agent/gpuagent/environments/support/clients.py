"""Calls of the command-line clients of container runtimes."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

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


def inspect(command: Sequence[str]) -> Mapping[str, Any]:
    """Return the object that an `inspect` of one thing prints, in a JSON array.

    Raises:
        ClientError: it failed, or printed something else.
    """
    text = ask_client(command)
    try:
        (found,) = json.loads(text)
        return dict(found)
    except (ValueError, TypeError) as error:
        raise ClientError(f"cannot read its answer as an array of one object: {error}") from error


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
