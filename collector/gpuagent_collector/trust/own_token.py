"""The collector's token: who has it may send and ask."""

import os
import secrets
from pathlib import Path

from gpuagent_common.connection import TokenError, read_token
from gpuagent_common.errors import GpuAgentError

_TOKEN_BYTES = 32


def ensure_token(path: Path) -> str:
    """Return the token in `path`; when there is no such file, make one that only its owner can read.

    Raises:
        GpuAgentError: it can be neither read nor made, or others can read it.
    """
    try:
        return read_token(path)
    except TokenError as error:
        raise GpuAgentError(str(error)) from error
    except FileNotFoundError:
        return _make_token(path)


def _make_token(path: Path) -> str:
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(token + "\n")
    except OSError as error:
        raise GpuAgentError(
            f"cannot make the token file {path}: {error.strerror}; name another with --token-file"
        ) from error
    return token
