"""The certificates that a collector serves with: their folder, their choice, their renewal."""

import logging
import ssl
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import grpc

from gpuagent_collector.times import utc_now
from gpuagent_collector.trust.authority import Authority, Pair, belong_together, expires_at, hosts_of
from gpuagent_collector.trust.private_files import check_folder, check_private, check_unreadable_by_all, write_private
from gpuagent_common.address import Address
from gpuagent_common.connection import default_ca_file
from gpuagent_common.errors import GpuAgentError, MisuseError

_LOG = logging.getLogger(__name__)

# Time before the end of a certificate from which the collector warns at start.
WARN_BEFORE = timedelta(days=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The files that a collector serves TLS with.

    Attributes:
        certificate: the certificate chain, PEM.
        key: the certificate's private key, PEM.
        client_ca: CA certificates of the clients; None: clients need no certificate.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None


class ServerCertificate:
    """The last content of the files that was consistent. Any thread may use it."""

    def __init__(self, settings: TlsSettings, now: Callable[[], datetime] = utc_now) -> None:
        """Read the files. Raises GpuAgentError: they cannot be read, do not match, or the certificate has expired."""
        self._settings = settings
        self._now = now
        self._lock = threading.Lock()
        self._seen = self._signature()
        self._seen_by_http = self._seen_by_grpc = self._seen
        self._served = self._read()
        if expires_at(self._served[0].certificate) <= now():
            raise GpuAgentError(f"the certificate {settings.certificate} has expired; renew it: collector certs rotate")

    @property
    def hosts(self) -> list[str]:
        """The names and addresses that the certificate is for."""
        return list(hosts_of(self._served[0].certificate))

    def __str__(self) -> str:
        hosts = ", ".join(self.hosts) or "no names"
        asks = "; clients need a certificate" if self._settings.client_ca else ""
        return f"certificate {self._settings.certificate}, for {hosts}{asks}"

    def expires_soon(self) -> datetime | None:
        """Return the end of the certificate, in UTC, if it is near."""
        end = expires_at(self._served[0].certificate)
        return end if end - self._now() < WARN_BEFORE else None

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """Return credentials that check the files at every handshake."""
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(),
            self._new_configuration,  # type: ignore[arg-type]
            require_client_authentication=self._settings.client_ca is not None,
        )

    def ssl_context(self) -> ssl.SSLContext:
        """Return a context for HTTP, where browsers and Prometheus need no certificate; see `renew`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load(context)
        return context

    def renew(self, context: ssl.SSLContext) -> None:
        """Use the present files for a context's next connections."""
        self._refresh()
        if self._seen_by_http != self._seen:
            self._load(context)

    def _new_configuration(self) -> grpc.ServerCertificateConfiguration | None:
        """Return what gRPC's handshakes use from now on; None: as before. HTTP may have loaded the files already."""
        self._refresh()
        if self._seen_by_grpc == self._seen:
            return None
        self._seen_by_grpc = self._seen
        return self._configuration()

    def _load(self, context: ssl.SSLContext) -> None:
        try:
            context.load_cert_chain(self._settings.certificate, self._settings.key)
            self._seen_by_http = self._seen
        except OSError as error:  # being replaced; the next connection tries again
            _LOG.warning("cannot reload the certificate for HTTP; the old one stays in use: %s", error)

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        pair, client_ca = self._served
        return grpc.ssl_server_certificate_configuration([(pair.key, pair.certificate)], root_certificates=client_ca)

    def _refresh(self) -> None:
        """Reload the files if they changed.

        Between the replacement of the certificate and of the key the two do not match: the old pair stays in use.
        """
        with self._lock:
            try:
                signature = self._signature()
                if signature == self._seen:
                    return
                self._served = self._read()
            except GpuAgentError as error:
                _LOG.warning("cannot reload the certificate; the old one stays in use: %s", error)
                return
            self._seen = signature
            _LOG.info("a new certificate is in use, from %s", self._settings.certificate)

    def _signature(self) -> tuple[tuple[int, ...], ...]:
        """Return time, inode and size of each file; empty for a missing one."""
        settings = self._settings
        return tuple(
            _state(path) for path in (settings.certificate, settings.key, settings.client_ca) if path is not None
        )

    def _read(self) -> tuple[Pair, bytes | None]:
        settings = self._settings
        try:
            check_unreadable_by_all(settings.key)
            pair = Pair(certificate=settings.certificate.read_bytes(), key=settings.key.read_bytes())
            client_ca = settings.client_ca.read_bytes() if settings.client_ca else None
            fits = belong_together(pair)
        except OSError as error:
            raise GpuAgentError(f"cannot read {error.filename}: {error.strerror}") from error
        except ValueError as error:
            raise GpuAgentError(f"{settings.certificate} and {settings.key} are no PEM certificate and key") from error
        if not fits:
            raise GpuAgentError(f"{settings.key} is not the key of {settings.certificate}")
        if client_ca is not None and b"BEGIN CERTIFICATE" not in client_ca:
            raise GpuAgentError(f"there is no certificate in {settings.client_ca}")
        return pair, client_ca


def _state(path: Path) -> tuple[int, ...]:
    try:
        state = path.stat()
    except OSError:
        return ()
    return (state.st_mtime_ns, state.st_ino, state.st_size)


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
            GpuAgentError: the folder cannot be written, or others could replace what is in it.
        """
        if self.ca.exists() or self._ca_key.exists():
            raise MisuseError(
                f"there is a CA in {self.path} already; renew the server certificate: collector certs rotate, "
                "or make another CA in another --dir"
            )
        check_folder(self.path)
        authority = Authority.create()
        server = authority.issue_server(hosts)
        _write(authority.pair, self.ca, self._ca_key)
        _write(server, self.server.certificate, self.server.key)

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
        _write(authority.issue_server(hosts), self.server.certificate, self.server.key)
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


def _write(pair: Pair, certificate: Path, key: Path) -> None:
    write_private(key, pair.key)
    write_private(certificate, pair.certificate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Encryption:
    """The user's options for encryption; None: not given."""

    tls_cert: Path | None
    tls_key: Path | None
    tls_client_ca: Path | None
    insecure: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The certificates of the gRPC and the HTTP port. None: that port is not encrypted."""

    grpc: ServerCertificate | None = None
    http: ServerCertificate | None = None

    @property
    def certificate(self) -> ServerCertificate | None:
        """The certificate of either port."""
        return self.grpc or self.http


def choose_certificates(listen: Address, http: Address | None, asked: Encryption) -> Shown:
    """Return the certificates to serve with.

    A certificate named by options is used everywhere. That of `collector certs init` is used only where other machines
    can connect, so that nothing changes on loopback for anyone who has made one.

    Raises:
        MisuseError: options contradict each other, or a reachable address would not be encrypted.
        GpuAgentError: the certificate cannot be used.
    """
    if (asked.tls_cert is None) != (asked.tls_key is None):
        raise MisuseError("--tls-cert and --tls-key belong together; give both")
    if asked.tls_cert and asked.tls_key:
        if asked.insecure:
            raise MisuseError("--insecure and --tls-cert contradict each other; give one of them")
        settings = TlsSettings(certificate=asked.tls_cert, key=asked.tls_key, client_ca=asked.tls_client_ca)
        named = ServerCertificate(settings)
        return Shown(grpc=named, http=named)
    usual = CertificateFolder.usual().server
    reachable = [address for address in (listen, http) if address and not address.is_loopback()]
    if reachable and not asked.insecure:
        if not usual.certificate.exists():
            raise MisuseError(
                f"{reachable[0]} is open to other machines without TLS; run: collector certs init; or listen on "
                "127.0.0.1; or accept it with --insecure"
            )
        shown = ServerCertificate(replace(usual, client_ca=asked.tls_client_ca))
        return Shown(grpc=shown if listen in reachable else None, http=shown if http in reachable else None)
    if asked.tls_client_ca:
        raise MisuseError("--tls-client-ca is for TLS; give --tls-cert and --tls-key as well")
    return Shown()
