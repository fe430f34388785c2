"""The address, token and TLS files with which a client connects to a collector."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.folders import home_folder, user_folder

# The default address of `collector serve` and of its clients.
DEFAULT_ADDRESS = "127.0.0.1:50051"

# Environment variable with the collector's HOST:PORT.
ADDRESS_VARIABLE = "GPUAGENT_COLLECTOR"

# Options by which a command reads later what it reads now from a collector that ends with its caller.
READ_LATER_VARIABLE = "GPUAGENT_READ_LATER"

# The command that prints the whole of an answer, where another command prints its first screen.
WHOLE_ANSWER_VARIABLE = "GPUAGENT_WHOLE_ANSWER"

# Environment variable with the path of the token file.
TOKEN_FILE_VARIABLE = "GPUAGENT_TOKEN_FILE"  # noqa: S105 - the name of a variable

# Environment variable with the path of the CA certificates of the collector.
CA_FILE_VARIABLE = "GPUAGENT_CA_FILE"

# Environment variables with the paths of the client certificate and its key.
CLIENT_CERT_VARIABLE = "GPUAGENT_CLIENT_CERT"
CLIENT_KEY_VARIABLE = "GPUAGENT_CLIENT_KEY"

# gRPC metadata key of the token; its value is `Bearer TOKEN`.
TOKEN_METADATA_KEY = "authorization"  # noqa: S105 - the name of a header

# The largest experiment file that agents accept.
MAX_EXPERIMENT_BYTES = 1024 * 1024

# The largest message that either side accepts.
MAX_MESSAGE_BYTES = 16 * 1024 * 1024


def host_and_port(address: str) -> tuple[str, int] | None:
    """Return host (IPv6 without brackets) and port of HOST:PORT; None: the text has another form."""
    try:
        place = urlsplit(f"//{address}")
        host, port = place.hostname, place.port
    except ValueError:
        return None
    return None if place.netloc != address or host is None or port is None else (host, port)


class TokenError(GpuAgentError):
    """The token file cannot be used."""


class TlsError(GpuAgentError):
    """A certificate or key cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The files of a client for TLS, read again for every connection.

    Attributes:
        ca: CA certificates of the collector.
        certificate: client certificate for a collector that requires one; None: no certificate.
    """

    ca: Path
    certificate: Path | None = None
    key: Path | None = None


def tls_files(ca: Path | None, certificate: Path | None, key: Path | None) -> TlsFiles | None:
    """Return the files of --ca-file, --client-cert and --client-key; None: no TLS.

    Raises MisuseError: they do not belong together.
    """
    if (certificate is None) != (key is None):
        raise MisuseError("--client-cert and --client-key belong together; give both")
    if ca is None:
        if certificate is not None:
            raise MisuseError("--client-cert is for TLS; give the collector's CA as well, by --ca-file")
        return None
    return TlsFiles(ca=ca, certificate=certificate, key=key)


def configuration_folder() -> Path:
    """Return the folder of the user's configuration, below XDG_CONFIG_HOME (~/.config); `user_folder` has the rest.

    One that exists in the home is read there even if it cannot be written, such as one that an orchestrator mounts.
    """
    home = home_folder(os.environ)
    own = home / ".config" / "gpuagent" if home and not os.environ.get("XDG_CONFIG_HOME") else None
    if own and os.path.exists(own):  # noqa: PTH110 - Path.exists raises where a parent cannot be searched
        return own
    return user_folder(os.environ, "XDG_CONFIG_HOME", ".config", "config") / "gpuagent"


def default_token_file() -> Path:
    """Return the path of the user's token: GPUAGENT_TOKEN_FILE, or in the user's configuration."""
    named = os.environ.get(TOKEN_FILE_VARIABLE)
    return Path(named) if named else configuration_folder() / "token"


def default_ca_file() -> Path:
    """Return the path of the CA certificate of `collector certs init`."""
    return configuration_folder() / "tls" / "ca.crt"


def read_token(path: Path) -> str:
    """Return the first line of `path`, the token; a CA certificate may follow, as `collector tokens` prints it.

    Raises:
        FileNotFoundError: the file does not exist.
        TokenError: it has no token, is unreadable, or readable by anyone but its owner.
    """
    try:
        # Before it is read: another user's pipe would hold up who reads it.
        if is_open_to_others(path.stat()):
            raise TokenError(f"the token file {path} can be read by others; run: chmod 600 {path}")
        token = path.read_text(errors="replace").strip().partition("\n")[0].strip()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise TokenError(f"cannot read the token file {path}: {error}") from error
    if not (token and token.isascii() and token.isprintable()):
        join = "collector tokens create agent --node NODE | gpuagent join HOST:PORT"
        raise TokenError(f"{path} is no token file; give another by --token-file, or join: {join}")
    return token


def is_open_to_others(status: os.stat_result) -> bool:
    """Return whether anyone but the owner can use a file; a pod's group may read a Secret, which root owns."""
    is_secret = status.st_uid == 0 and os.geteuid() != 0
    return bool(status.st_mode & (stat.S_IRWXO | (stat.S_IWGRP if is_secret else stat.S_IRWXG)))


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    """Return the call metadata that carries `token`."""
    return ((TOKEN_METADATA_KEY, f"Bearer {token}"),)
