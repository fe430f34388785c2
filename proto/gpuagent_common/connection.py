"""How a client finds and enters a collector: the parts of the contract that are not messages."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

# Where `collector serve` listens, and where clients look, unless told otherwise.
DEFAULT_ADDRESS = "127.0.0.1:50051"

# Environment variable with the collector's HOST:PORT.
ADDRESS_VARIABLE = "GPUAGENT_COLLECTOR"

# Environment variable with the path of the token file.
TOKEN_FILE_VARIABLE = "GPUAGENT_TOKEN_FILE"  # noqa: S105 - the name of a variable

# Environment variable with the path of the CA certificates that a collector's certificate must come from.
CA_FILE_VARIABLE = "GPUAGENT_CA_FILE"

CLIENT_CERT_VARIABLE = "GPUAGENT_CLIENT_CERT"
# Environment variables with the paths of what a client shows where the collector asks for a certificate.
CLIENT_KEY_VARIABLE = "GPUAGENT_CLIENT_KEY"

# gRPC metadata key of the token; its value is `Bearer TOKEN`.
TOKEN_METADATA_KEY = "authorization"  # noqa: S105 - the name of a header

# Of an experiment file: what agents read.
MAX_EXPERIMENT_BYTES = 1024 * 1024

# The largest message either side takes.
MAX_MESSAGE_BYTES = 16 * 1024 * 1024


def host_and_port(address: str) -> tuple[str, int] | None:
    """Return the two parts of HOST:PORT, an IPv6 host without its brackets; None: it has not both, or more."""
    try:
        place = urlsplit(f"//{address}")
        host, port = place.hostname, place.port
    except ValueError:
        return None
    return None if place.netloc != address or host is None or port is None else (host, port)


class TokenError(Exception):
    """The token file cannot be used: one line that says why and what to do."""


class TlsError(Exception):
    """A certificate or key cannot be used: one line that says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """What a client needs to speak TLS, as files, which are read again for every connection.

    Attributes:
        ca: certificates that the collector's must come from.
        certificate: what to show where the collector asks for a client's certificate; None: nothing.
        key: the certificate's private key.
    """

    ca: Path
    certificate: Path | None = None
    key: Path | None = None


def tls_files(ca: Path | None, certificate: Path | None, key: Path | None) -> TlsFiles | None:
    """Return what --ca-file, --client-cert and --client-key name; None: no TLS.

    Raises:
        ValueError: they do not fit together: one line that says how.
    """
    if (certificate is None) != (key is None):
        raise ValueError("--client-cert and --client-key belong together; give both")
    if ca is None:
        if certificate is not None:
            raise ValueError("--client-cert is for TLS; name the collector's CA as well, by --ca-file")
        return None
    return TlsFiles(ca=ca, certificate=certificate, key=key)


def configuration_folder() -> Path:
    """Return where a user's configuration lies: below XDG_CONFIG_HOME (~/.config)."""
    config = os.environ.get("XDG_CONFIG_HOME")
    return (Path(config) if config else Path.home() / ".config") / "gpuagent"


def default_token_file() -> Path:
    """Return where a user's token lies: GPUAGENT_TOKEN_FILE, or in the user's configuration."""
    named = os.environ.get(TOKEN_FILE_VARIABLE)
    return Path(named) if named else configuration_folder() / "token"


def default_ca_file() -> Path:
    """Return where `collector certs init` puts the CA's certificate."""
    return configuration_folder() / "tls" / "ca.crt"


def read_token(path: Path) -> str:
    """Return the token in `path`: its first line; below it may be the CA's certificate, as a collector prints both.

    Raises:
        FileNotFoundError: there is no such file.
        TokenError: it is empty, is unreadable, or others than its owner may read it.
    """
    try:
        status = path.stat()
        token = path.read_text().strip().partition("\n")[0].strip()
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise TokenError(f"cannot read the token file {path}: {error}") from error
    if is_open_to_others(status):
        raise TokenError(f"the token file {path} can be read by others; run: chmod 600 {path}")
    if not token:
        raise TokenError(f"the token file {path} is empty; delete it, and `collector serve` makes a new one")
    return token


def is_open_to_others(status: os.stat_result) -> bool:
    """Tell whether others than its owner may use a file; a Secret in a pod is root's, for the pod's group to read."""
    is_secret = status.st_uid == 0 and os.geteuid() != 0
    return bool(status.st_mode & (stat.S_IRWXO | (stat.S_IWGRP if is_secret else stat.S_IRWXG)))


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    """Return the call metadata that carries `token`."""
    return ((TOKEN_METADATA_KEY, f"Bearer {token}"),)
