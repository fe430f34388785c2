"""A certificate authority for one site: it signs the collector's certificate, and those of clients for mutual TLS."""

import ipaddress
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gpuagent_collector.times import utc_now
from gpuagent_common.errors import MisuseError

# Every node has a copy, and nobody wants to visit them all.
CA_LIFETIME = timedelta(days=3650)

# The limit of public authorities for years; `collector certs rotate` makes the next one.
LEAF_LIFETIME = timedelta(days=397)

# Certificates start this long ago, for nodes whose clocks are behind.
_CLOCK_SKEW = timedelta(hours=1)

# Of a common name: RFC 5280, ub-common-name.
_MAX_NAME_CHARACTERS = 64

# RFC 1123, and underscores, which some sites have.
_HOST_PART = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A CA's certificate and key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    now: Callable[[], datetime] = utc_now

    @classmethod
    def create(cls, now: Callable[[], datetime] = utc_now) -> "Authority":
        """Make a new CA: EC P-256, which every TLS library of the last decade supports."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("gpuagent collector CA")
        start = now()
        certificate = (
            _unsigned_certificate(name, name, key.public_key(), start, CA_LIFETIME)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate=certificate, key=key, now=now)

    @classmethod
    def load(cls, pair: Pair) -> "Authority":
        """Read a CA that `pair` wrote. Raises ValueError: it is not a CA."""
        key = serialization.load_pem_private_key(pair.key, password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the CA's key is not an EC key")
        return cls(certificate=x509.load_pem_x509_certificate(pair.certificate), key=key)

    @property
    def pair(self) -> Pair:
        """The CA in PEM."""
        return _pair(self.certificate, self.key)

    def issue_server(self, hosts: Sequence[str]) -> Pair:
        """Return a certificate for a server with these names and addresses.

        Raises MisuseError: one is neither a name nor an address.
        """
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        return self._issue(hosts[0], ExtendedKeyUsageOID.SERVER_AUTH, names)

    def issue_client(self, name: str) -> Pair:
        """Return a certificate for a client. Raises MisuseError: the name is empty or too long."""
        return self._issue(name, ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _issue(self, name: str, usage: x509.ObjectIdentifier, names: x509.SubjectAlternativeName | None) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _unsigned_certificate(_name(name), self.certificate.subject, key.public_key(), self.now(), LEAF_LIFETIME)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        return _pair(builder.sign(self.key, hashes.SHA256()), key)


def hosts_of(certificate: bytes) -> list[str]:
    """Return the names and addresses in a PEM certificate. Raises ValueError: it is not a certificate."""
    try:
        names = (
            x509.load_pem_x509_certificate(certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName)
        ).value
    except x509.ExtensionNotFound:
        return []
    return [
        *names.get_values_for_type(x509.DNSName),
        *(str(address) for address in names.get_values_for_type(x509.IPAddress)),
    ]


def expires_at(certificate: bytes) -> datetime:
    """Return the end of a PEM certificate, in UTC without a zone. Raises ValueError: it is not a certificate."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc.replace(tzinfo=None)


def belong_together(pair: Pair) -> bool:
    """Return whether a key is the certificate's. Raises ValueError: one of them is not PEM."""
    key = serialization.load_pem_private_key(pair.key, password=None)
    return x509.load_pem_x509_certificate(pair.certificate).public_key() == key.public_key()


def _unsigned_certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, start: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - _CLOCK_SKEW)
        .not_valid_after(start + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    if not text or not text.isprintable():
        raise MisuseError(f"a certificate's name must be printable; not {text!r}")
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:_MAX_NAME_CHARACTERS])])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if len(host) > 253 or not all(_HOST_PART.fullmatch(part) for part in host.split(".")):
        raise MisuseError(f"--host takes a name or an address without a port; not {host!r}")
    return x509.DNSName(host)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        certificate=certificate.public_bytes(serialization.Encoding.PEM),
        key=key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )
