"""The folder in which `collector certs` keeps a CA and its certificates, with Kubernetes' file names."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuagent_collector.trust.authority import Authority, Pair, hosts_of
from gpuagent_collector.trust.private_files import check_private, write_private
from gpuagent_collector.trust.server_certificate import TlsSettings
from gpuagent_common.connection import default_ca_file
from gpuagent_common.errors import GpuAgentError, MisuseError


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFolder:
    """A folder of certificates that only its owner can read."""

    path: Path

    @classmethod
    def usual(cls) -> "CertificateFolder":
        """Return the folder in the user's configuration."""
        return cls(path=default_ca_file().parent)

    @property
    def ca(self) -> Path:
        """The CA's certificate, which clients need."""
        return self.path / "ca.crt"

    @property
    def server(self) -> TlsSettings:
        """The files that a collector serves with."""
        return TlsSettings(certificate=self.path / "tls.crt", key=self.path / "tls.key")

    def init(self, hosts: Sequence[str]) -> None:
        """Make a CA, and a server's certificate for these hosts.

        Raises:
            MisuseError: there is a CA already, or a host is malformed.
            GpuAgentError: the folder cannot be written.
        """
        if self.ca.exists() or self._ca_key.exists():
            raise MisuseError(
                f"there is a CA in {self.path} already; renew the server certificate: collector certs rotate, "
                "or make another CA in another --dir"
            )
        authority = Authority.create()
        server = authority.issue_server(hosts)
        _write(authority.pair, self.ca, self._ca_key)
        self._write_server(server)

    def rotate(self, more_hosts: Sequence[str]) -> Sequence[str]:
        """Replace the server's certificate by a new one of the same CA; return its hosts.

        Raises:
            MisuseError: there is no CA here, or a host is malformed.
            GpuAgentError: the folder cannot be read or written.
        """
        authority = self._authority()
        try:
            before = hosts_of(self.server.certificate.read_bytes())
        except FileNotFoundError:
            before = []
        except (OSError, ValueError) as error:
            raise GpuAgentError(f"cannot read {self.server.certificate}: {error}") from error
        hosts = list(dict.fromkeys([*before, *more_hosts]))
        if not hosts:
            raise MisuseError("the certificate needs a name of the collector: --host NAME")
        self._write_server(authority.issue_server(hosts))
        return hosts

    def issue_client(self, name: str) -> TlsSettings:
        """Make a certificate for a client; return its files.

        Raises:
            MisuseError: there is no CA here, or the name is malformed.
            GpuAgentError: the folder cannot be read or written.
        """
        if Path(name).name != name or name.startswith("."):
            raise MisuseError(f"a node's name must be a valid file name; not {name!r}")
        pair = self._authority().issue_client(name)
        folder = self.path / "nodes"
        files = TlsSettings(certificate=folder / f"{name}.crt", key=folder / f"{name}.key")
        _write(pair, files.certificate, files.key)
        return files

    @property
    def _ca_key(self) -> Path:
        return self.path / "ca.key"

    def _authority(self) -> Authority:
        try:
            check_private(self._ca_key)
            return Authority.load(Pair(certificate=self.ca.read_bytes(), key=self._ca_key.read_bytes()))
        except FileNotFoundError:
            raise MisuseError(f"there is no CA in {self.path}; make one: collector certs init") from None
        except (OSError, ValueError) as error:
            raise GpuAgentError(f"cannot read the CA in {self.path}: {error}") from error

    def _write_server(self, pair: Pair) -> None:
        _write(pair, self.server.certificate, self.server.key)


def _write(pair: Pair, certificate: Path, key: Path) -> None:
    write_private(key, pair.key)
    write_private(certificate, pair.certificate)
