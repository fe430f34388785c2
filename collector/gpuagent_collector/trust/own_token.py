"""The collector owner's token, which allows everything."""

import os
import secrets
from pathlib import Path
from tempfile import NamedTemporaryFile

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
    except FileNotFoundError:
        pass
    except TokenError as error:
        raise GpuAgentError(str(error)) from error
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Whole from the first moment: another collector that starts now reads it.
        with NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}-") as file:
            file.write(token + "\n")
            file.flush()
            os.link(file.name, path)
    except FileExistsError as error:  # another collector was faster
        return _read_made(path, error)
    except OSError as error:
        raise _not_made(path, error) from error
    return token


def _read_made(path: Path, error: OSError) -> str:
    try:
        return read_token(path)
    except FileNotFoundError:  # a link that leads nowhere
        raise _not_made(path, error) from error
    except TokenError as unreadable:
        raise GpuAgentError(str(unreadable)) from unreadable


def _not_made(path: Path, error: OSError) -> GpuAgentError:
    return GpuAgentError(f"cannot make the token file {path}: {error.strerror}; give --token-file")
