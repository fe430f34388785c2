"""How a client finds and enters a collector: the parts of the contract that are not messages."""

import os
import stat
from pathlib import Path

DEFAULT_ADDRESS = "127.0.0.1:50051"
"""Where `collector serve` listens, and where clients look, unless told otherwise."""

ADDRESS_VARIABLE = "GPUAGENT_COLLECTOR"
"""Environment variable with the collector's HOST:PORT."""

TOKEN_FILE_VARIABLE = "GPUAGENT_TOKEN_FILE"  # noqa: S105 - the name of a variable
"""Environment variable with the path of the token file."""

TOKEN_METADATA_KEY = "authorization"  # noqa: S105 - the name of a header
"""gRPC metadata key of the token; its value is `Bearer TOKEN`."""

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""The largest message either side takes."""


class TokenError(Exception):
    """The token file cannot be used: one line that says why and what to do."""


def default_token_file() -> Path:
    """Return where a user's token lies: GPUAGENT_TOKEN_FILE, or below XDG_CONFIG_HOME (~/.config)."""
    named = os.environ.get(TOKEN_FILE_VARIABLE)
    if named:
        return Path(named)
    config = os.environ.get("XDG_CONFIG_HOME")
    return (Path(config) if config else Path.home() / ".config") / "gpuagent" / "token"


def read_token(path: Path) -> str:
    """Return the token in `path`.

    Raises:
        FileNotFoundError: there is no such file.
        TokenError: it is empty, is unreadable, or others than its owner may read it.
    """
    try:
        mode = path.stat().st_mode
        token = path.read_text().strip()
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise TokenError(f"cannot read the token file {path}: {error}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise TokenError(f"the token file {path} can be read by others; run: chmod 600 {path}")
    if not token:
        raise TokenError(f"the token file {path} is empty; delete it, and `collector serve` makes a new one")
    return token


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    """Return the call metadata that carries `token`."""
    return ((TOKEN_METADATA_KEY, f"Bearer {token}"),)
