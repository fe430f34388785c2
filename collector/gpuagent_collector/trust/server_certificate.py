"""The collector's own certificate, reloaded by a running collector when its files change."""

import logging
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import grpc

from gpuagent_collector.times import utc_now
from gpuagent_collector.trust.authority import Pair, belong_together, expires_at, hosts_of
from gpuagent_collector.trust.private_files import check_unreadable_by_all
from gpuagent_common.errors import GpuAgentError

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
        """Read the files.

        Raises:
            GpuAgentError: they cannot be read, do not match, or the certificate has expired.
        """
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
