"""Asks the command-line clients of container runtimes."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from gpuagent.environments.environment import EnvironmentUnavailableError

# A runtime that says nothing for so long hangs. Podman's first call of a user may take seconds.
_ANSWER_SECONDS = 30.0


class ClientError(Exception):
    """A client ended with an error: what it said last."""


def ask_client(command: Sequence[str]) -> str:
    """Return what a client prints.

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
        found = json.loads(text)
    except ValueError as error:
        raise ClientError(f"its answer cannot be read: {error}") from error
    if not isinstance(found, list) or len(found) != 1 or not isinstance(found[0], dict):
        raise ClientError("its answer cannot be read: it is no array of one object")
    return found[0]


def need_program(program: str, remedy: str) -> None:
    """See that there is a program of that name.

    Raises:
        EnvironmentUnavailableError: there is none.
    """
    if not shutil.which(program):
        raise EnvironmentUnavailableError(f"there is no program {program!r}", remedy)


def last_line(text: str) -> str:
    """Return the last line of `text` that holds anything."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
