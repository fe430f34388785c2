"""The collector's own certificate, which a running collector takes up again when its files change."""

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

# How long before its end a certificate is worth a warning at start.
WARN_BEFORE = timedelta(days=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The files that a collector serves TLS with.

    Attributes:
        certificate: the chain that it shows, PEM.
        key: the certificate's private key, PEM.
        client_ca: certificates that those of clients must come from; None: clients show none.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None


class ServerCertificate:
    """The files' content as it was when they last fitted together. Any thread may use it."""

    def __init__(self, settings: TlsSettings, now: Callable[[], datetime] = utc_now) -> None:
        """Read the files.

        Raises:
            GpuAgentError: they cannot be read, do not fit together, or the certificate has expired.
        """
        self._settings = settings
        self._now = now
        self._lock = threading.Lock()
        self._seen = self._signature()
        self._seen_by_http = self._seen
        self._served = self._read()
        if expires_at(self._served[0].certificate) <= now():
            raise GpuAgentError(
                f"the certificate {settings.certificate} has expired; make a new one: collector certs rotate"
            )

    def __str__(self) -> str:
        hosts = ", ".join(hosts_of(self._served[0].certificate)) or "no names"
        asks = "; clients show one of their own" if self._settings.client_ca else ""
        return f"certificate {self._settings.certificate}, for {hosts}{asks}"

    def expires_soon(self) -> datetime | None:
        """Return when the certificate ends, in UTC, where that is soon."""
        end = expires_at(self._served[0].certificate)
        return end if end - self._now() < WARN_BEFORE else None

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """Return credentials that look at the files at every handshake."""
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(),
            lambda: self._configuration() if self._refresh() else None,  # type: ignore[arg-type,return-value]
            require_client_authentication=self._settings.client_ca is not None,
        )

    def ssl_context(self) -> ssl.SSLContext:
        """Return a context for HTTP, which asks browsers and Prometheus for no certificate; see `renew`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load(context)
        return context

    def renew(self, context: ssl.SSLContext) -> None:
        """Have a context's next connections use the files as they are now."""
        self._refresh()
        if self._seen_by_http != self._seen:
            self._load(context)

    def _load(self, context: ssl.SSLContext) -> None:
        try:
            context.load_cert_chain(self._settings.certificate, self._settings.key)
            self._seen_by_http = self._seen
        except OSError as error:  # replaced just now; the next connection tries again
            _LOG.warning("HTTP serves on the certificate as it was: %s", error)

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        pair, client_ca = self._served
        return grpc.ssl_server_certificate_configuration([(pair.key, pair.certificate)], root_certificates=client_ca)

    def _refresh(self) -> bool:
        """Read the files again if they changed; return whether others are served now.

        Certificate and key are two files: between the replacement of one and the other they do not fit together, and
        what was read before is served on.
        """
        with self._lock:
            try:
                signature = self._signature()
                if signature == self._seen:
                    return False
                self._served = self._read()
            except GpuAgentError as error:
                _LOG.warning("the certificate as it was is served on: %s", error)
                return False
            self._seen = signature
            _LOG.info("a new certificate is served, from %s", self._settings.certificate)
            return True

    def _signature(self) -> tuple[tuple[int, ...], ...]:
        """Return what changes when a file does; empty for one that is not there."""
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
