"""The choice of the certificates that a collector serves with."""

from dataclasses import dataclass, replace
from pathlib import Path

from gpuagent_collector.trust.certificate_folder import CertificateFolder
from gpuagent_collector.trust.server_certificate import ServerCertificate, TlsSettings
from gpuagent_common.address import Address
from gpuagent_common.errors import MisuseError


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
