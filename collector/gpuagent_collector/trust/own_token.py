"""The collector owner's token, which allows everything."""

import os
import secrets
from pathlib import Path

from gpuagent_common.connection import TokenError, read_token
from gpuagent_common.errors import GpuAgentError

_TOKEN_BYTES = 32


def ensure_token(path: Path) -> str:
    """Return the token in `path`; make the file, readable by its owner alone, if it does not exist.

    Raises:
        GpuAgentError: the file cannot be read or made, or others can read it.
    """
    try:
        return read_token(path)
    except TokenError as error:
        raise GpuAgentError(str(error)) from error
    except FileNotFoundError:
        token = secrets.token_urlsafe(_TOKEN_BYTES)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(token + "\n")
        except OSError:
            path.unlink()
            raise
    except OSError as error:
        raise GpuAgentError(f"cannot make the token file {path}: {error.strerror}; give --token-file") from error
    return token
