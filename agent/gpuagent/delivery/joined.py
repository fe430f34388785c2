"""What `gpuagent join` left: which collector this user's agent belongs to, its token, and what TLS needs."""

from dataclasses import dataclass
from pathlib import Path

from gpuagent.locations import make_private
from gpuagent_common.connection import TlsFiles, configuration_folder
from gpuagent_common.errors import GpuAgentError

# Of what a collector prints: a token, and some certificates.
MAX_JOIN_CHARACTERS = 64 * 1024

_BEGIN = "-----BEGIN CERTIFICATE-----"


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The files, apart from those of a collector of the same user.

    Attributes:
        folder: where they lie.
    """

    folder: Path

    @classmethod
    def usual(cls) -> "Joined":
        """Return those of this user."""
        return cls(folder=configuration_folder() / "agent")

    @property
    def token(self) -> Path:
        """The agent's token."""
        return self.folder / "token"

    @property
    def ca(self) -> Path:
        """The certificate that the collector's must come from; not there when the collector speaks no TLS."""
        return self.folder / "ca.crt"

    @property
    def tls(self) -> TlsFiles | None:
        """What is kept for TLS; None: the collector speaks none."""
        if not self.ca.exists():
            return None
        shown = self._certificate.exists()
        return TlsFiles(ca=self.ca, certificate=self._certificate if shown else None, key=self._key if shown else None)

    @property
    def collector(self) -> str | None:
        """The collector's HOST:PORT; None: the user has not joined any.

        Raises:
            GpuAgentError: it cannot be read.
        """
        try:
            return self._address.read_text().strip() or None
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise GpuAgentError(f"cannot read {self._address}: {error}; join again: gpuagent join") from error

    def keep(self, address: str, text: str, client: TlsFiles | None = None) -> None:
        """Write what joins the collector at `address`: `text`, as `collector tokens create` printed it.

        Of `client` the certificate and its key are copied: what the collector is shown where it asks for one.

        Raises:
            GpuAgentError: it cannot be written, or is none.
        """
        token, certificates = split(text)
        make_private(self.folder)
        self._address.unlink(missing_ok=True)  # until all is there, nothing is joined
        _write(self.token, f"{token}\n")
        _write_or_remove(self.ca, certificates)
        _write_or_remove(self._key, _text(client.key if client else None))
        _write_or_remove(self._certificate, _text(client.certificate if client else None))
        _write(self._address, f"{address}\n")

    @property
    def _certificate(self) -> Path:
        return self.folder / "client.crt"

    @property
    def _key(self) -> Path:
        return self.folder / "client.key"

    @property
    def _address(self) -> Path:
        return self.folder / "collector"


def split(text: str) -> tuple[str, str]:
    """Return the token and the CA's certificates; these are empty where there are none.

    Raises:
        GpuAgentError: it is not what `collector tokens create` printed.
    """
    token, _, rest = text.strip().partition("\n")
    token, certificates = token.strip(), rest.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token or token.startswith("-"):
        raise GpuAgentError("that is not what `collector tokens create agent` prints: its first line is a token")
    if certificates and (not certificates.startswith(_BEGIN) or "PRIVATE KEY" in certificates):
        raise GpuAgentError("that is not what `collector tokens create agent` prints: no certificate follows the token")
    return token, f"{certificates}\n" if certificates else ""


def _text(path: Path | None) -> str:
    try:
        return path.read_text() if path else ""
    except (OSError, UnicodeDecodeError) as error:
        raise GpuAgentError(f"cannot read {path}: {error}") from error


def _write_or_remove(path: Path, text: str) -> None:
    if text:
        _write(path, text)
    else:
        path.unlink(missing_ok=True)


def _write(path: Path, text: str) -> None:
    try:
        path.unlink(missing_ok=True)
        path.touch(mode=0o600, exist_ok=False)
        path.write_text(text)
    except OSError as error:
        raise GpuAgentError(f"cannot write {path}: {error.strerror}") from error
