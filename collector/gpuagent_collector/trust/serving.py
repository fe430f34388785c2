"""Which certificate is shown where."""

from dataclasses import dataclass, replace
from pathlib import Path

from gpuagent_collector.trust.certificate_folder import CertificateFolder
from gpuagent_collector.trust.server_certificate import ServerCertificate, TlsSettings
from gpuagent_common.address import Address
from gpuagent_common.errors import MisuseError


@dataclass(frozen=True, slots=True, kw_only=True)
class Encryption:
    """What the user said of it; None: nothing."""

    tls_cert: Path | None
    tls_key: Path | None
    tls_client_ca: Path | None
    insecure: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What is shown where agents and commands connect, and what over HTTP. None: nothing is encrypted there."""

    grpc: ServerCertificate | None = None
    http: ServerCertificate | None = None

    @property
    def certificate(self) -> ServerCertificate | None:
        """The one that is shown anywhere."""
        return self.grpc or self.http


def choose(listen: Address, http: Address | None, asked: Encryption) -> Shown:
    """Return what to show.

    A certificate that options name is shown everywhere; that of `collector certs init` only where other machines reach,
    so that nothing changes on loopback for who has made one.

    Raises:
        MisuseError: options contradict each other, or an address that others reach would not be encrypted.
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
    return _usual(listen, http, asked)


def _usual(listen: Address, http: Address | None, asked: Encryption) -> Shown:
    usual = CertificateFolder.usual().server
    reached = [address for address in (listen, http) if address and not address.is_loopback()]
    if reached and not asked.insecure:
        if not usual.certificate.exists():
            raise MisuseError(
                f"{reached[0]} can be reached from other machines, and nothing is encrypted; make certificates: "
                "collector certs init; or listen on 127.0.0.1 behind an SSH tunnel, or accept it with --insecure"
            )
        shown = ServerCertificate(replace(usual, client_ca=asked.tls_client_ca))
        return Shown(grpc=shown if listen in reached else None, http=shown if http in reached else None)
    if asked.tls_client_ca:
        raise MisuseError("--tls-client-ca is for TLS; give --tls-cert and --tls-key as well")
    return Shown()
