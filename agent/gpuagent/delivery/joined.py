"""Files that `gpuagent join` writes: the collector's address, the agent's token, and the certificates for TLS."""

from dataclasses import dataclass
from pathlib import Path

from gpuagent.locations import make_private
from gpuagent_common.connection import TlsFiles, configuration_folder
from gpuagent_common.errors import GpuAgentError

# The most that a collector prints: a token and some certificates.
MAX_JOIN_CHARACTERS = 64 * 1024

_CERTIFICATE, _KEY, _ADDRESS = "client.crt", "client.key", "collector"
_BEGIN = "-----BEGIN CERTIFICATE-----"


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The files in `folder`, which is not the one of a collector of the same user."""

    folder: Path

    @classmethod
    def usual(cls) -> "Joined":
        """Return the files of this user."""
        return cls(folder=configuration_folder() / "agent")

    @property
    def token(self) -> Path:
        """The agent's token."""
        return self.folder / "token"

    @property
    def ca(self) -> Path:
        """The CA certificate of the collector; missing if the collector does not use TLS."""
        return self.folder / "ca.crt"

    @property
    def tls(self) -> TlsFiles | None:
        """The files for TLS; None: the collector does not use TLS."""
        if not self.ca.exists():
            return None
        certificate, key = self.folder / _CERTIFICATE, self.folder / _KEY
        return TlsFiles(ca=self.ca, certificate=certificate, key=key) if certificate.exists() else TlsFiles(ca=self.ca)

    @property
    def collector(self) -> str | None:
        """The collector's HOST:PORT; None: the user has not joined one.

        Raises GpuAgentError: the file cannot be read.
        """
        address = self.folder / _ADDRESS
        try:
            return address.read_text().strip() or None
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise GpuAgentError(f"cannot read {address}: {error}; join again: gpuagent join") from error

    def keep(self, address: str, text: str, client: TlsFiles | None = None) -> None:
        """Write the files that join the collector at `address`.

        `client` is a certificate and key to copy, for collectors that ask for one. Raises GpuAgentError: a file cannot
        be written, or `text` is something else.
        """
        token, certificates = split(text)
        make_private(self.folder, "XDG_CONFIG_HOME=DIR")
        (self.folder / _ADDRESS).unlink(missing_ok=True)  # nothing is joined until every file is complete
        _write(self.token, f"{token}\n")
        _write(self.ca, certificates)
        _write(self.folder / _KEY, _text(client.key if client else None))
        _write(self.folder / _CERTIFICATE, _text(client.certificate if client else None))
        _write(self.folder / _ADDRESS, f"{address}\n")


def split(text: str) -> tuple[str, str]:
    """Return the token and the CA certificates in `text`; certificates are empty without TLS.

    Raises GpuAgentError: `text` is not the output of `collector tokens create`.
    """
    token, _, rest = text.strip().partition("\n")
    token, certificates = token.strip(), rest.strip()
    expected = "expected the output of `collector tokens create agent`"
    if not token or not token.isascii() or not token.isprintable() or " " in token or token.startswith("-"):
        raise GpuAgentError(f"{expected}: the first line must be a token")
    if certificates and (not certificates.startswith(_BEGIN) or "PRIVATE KEY" in certificates):
        raise GpuAgentError(f"{expected}: only certificates may follow the token")
    return token, f"{certificates}\n" if certificates else ""


def _text(path: Path | None) -> str:
    try:
        return path.read_text() if path else ""
    except (OSError, UnicodeDecodeError) as error:
        raise GpuAgentError(f"cannot read {path}: {error}") from error


def _write(path: Path, text: str) -> None:
    """Replace the file by one that only its owner may read; an empty text removes it."""
    try:
        path.unlink(missing_ok=True)
        if text:
            path.touch(mode=0o600, exist_ok=False)
            path.write_text(text)
    except OSError as error:
        raise GpuAgentError(f"cannot write {path}: {error.strerror}") from error
