"""Where `collector certs` keeps a CA and what it signed, named as Kubernetes names them."""

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
    """A folder of certificates that only its owner can look into."""

    path: Path

    @classmethod
    def usual(cls) -> "CertificateFolder":
        """Return the one in the user's configuration."""
        return cls(path=default_ca_file().parent)

    @property
    def ca(self) -> Path:
        """The CA's certificate, which clients need."""
        return self.path / "ca.crt"

    @property
    def server(self) -> TlsSettings:
        """What a collector serves with."""
        return TlsSettings(certificate=self.path / "tls.crt", key=self.path / "tls.key")

    def init(self, hosts: Sequence[str]) -> None:
        """Make a CA, and a server's certificate for these hosts.

        Raises:
            MisuseError: there is a CA already, or a host makes no sense.
            GpuAgentError: the folder cannot be written.
        """
        if self.ca.exists() or self._ca_key.exists():
            raise MisuseError(
                f"there is a CA in {self.path} already, which nodes may have a copy of; a new server certificate: "
                "collector certs rotate; another CA: give another --dir"
            )
        authority = Authority.create()
        server = authority.issue_server(hosts)
        _write(authority.pair, self.ca, self._ca_key)
        self._write_server(server)

    def rotate(self, more_hosts: Sequence[str]) -> Sequence[str]:
        """Replace the server's certificate by a new one of the same CA; return the hosts that it is for.

        Raises:
            MisuseError: there is no CA here, or a host makes no sense.
            GpuAgentError: the folder cannot be read or written.
        """
        authority = self._authority()
        try:
            before = hosts_of(self.server.certificate.read_bytes())
        except FileNotFoundError:
            before = []
        except (OSError, ValueError) as error:
            raise GpuAgentError(f"{self.server.certificate} cannot be read: {error}") from error
        hosts = list(dict.fromkeys([*before, *more_hosts]))
        if not hosts:
            raise MisuseError("name what the collector is reached by: --host NAME")
        self._write_server(authority.issue_server(hosts))
        return hosts

    def issue_client(self, name: str) -> TlsSettings:
        """Make a certificate that a client shows; return where it lies.

        Raises:
            MisuseError: there is no CA here, or the name makes no sense.
            GpuAgentError: the folder cannot be read or written.
        """
        if Path(name).name != name or name.startswith("."):
            raise MisuseError(f"a node's name must be one that a file can have, not {name!r}")
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
            raise GpuAgentError(f"the CA in {self.path} cannot be read: {error}") from error

    def _write_server(self, pair: Pair) -> None:
        _write(pair, self.server.certificate, self.server.key)


def _write(pair: Pair, certificate: Path, key: Path) -> None:
    write_private(key, pair.key)
    write_private(certificate, pair.certificate)
