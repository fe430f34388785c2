"""Channels to a collector, and the causes of failed TLS connections."""

import socket
import ssl
from collections.abc import Sequence
from pathlib import Path

import grpc

from gpuagent_common.connection import CA_FILE_VARIABLE, TlsError, TlsFiles, default_ca_file, host_and_port

Options = Sequence[tuple[str, int | str]]

_PROBE_SECONDS = 3.0
_HTTP2 = ["h2"]

# OpenSSL's error codes of certificates (X509_V_ERR_…).
_EXPIRED, _NOT_YET_VALID = 10, 9
_WRONG_NAME, _WRONG_ADDRESS = 62, 64


def open_channel(address: str, tls: TlsFiles | None, options: Options) -> grpc.Channel:
    """Return a channel to the collector at `address` (HOST:PORT), not connected yet.

    Raises TlsError: a file cannot be read.
    """
    if tls is None:
        return grpc.insecure_channel(address, options=options)
    return grpc.secure_channel(address, _credentials(tls), options=options)


def open_aio_channel(address: str, tls: TlsFiles | None, options: Options) -> grpc.aio.Channel:
    """Return the same for an event loop. Raises TlsError where a file cannot be read."""
    if tls is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, _credentials(tls), options=options)


def why_unreachable(address: str, tls: TlsFiles | None) -> str | None:
    """Return the cause of a failed TLS connection; None: the cause is something else.

    gRPC's texts about handshakes differ by version and are incomplete, so this makes a handshake of its own with the
    standard library. It blocks for a few seconds at most.
    """
    place = host_and_port(address)
    if place is None:
        return None
    try:
        with socket.create_connection(place, timeout=_PROBE_SECONDS) as connection:
            return _try_handshake(connection, place[0], tls)
    except (OSError, TlsError):
        return None


def find_local_tls(address: str) -> TlsFiles | None:
    """Return the CA that `collector certs init` has made for this user, if the collector's certificate is from it.

    None: there is none, or the collector there uses another, or no TLS. It blocks for a few seconds at most.
    """
    place, ca = host_and_port(address), default_ca_file()
    if place is None or not ca.is_file():
        return None
    found = TlsFiles(ca=ca, certificate=None, key=None)
    try:
        with (
            socket.create_connection(place, timeout=_PROBE_SECONDS) as connection,
            _context(found).wrap_socket(connection, server_hostname=place[0]),
        ):
            return found
    except (OSError, TlsError):  # an ssl.SSLError is an OSError
        return None


def _credentials(tls: TlsFiles) -> grpc.ChannelCredentials:
    key = _read(tls.key, private=True) if tls.key else None
    certificate = _read(tls.certificate) if tls.certificate else None
    _context(tls)  # gRPC reports no error for files without certificates
    return grpc.ssl_channel_credentials(_read(tls.ca), key, certificate)


def _read(path: Path, *, private: bool = False) -> bytes:
    try:
        if private and path.stat().st_mode & 0o007:
            raise TlsError(f"everybody can read the key {path}; run: chmod 600 {path}")
        return path.read_bytes()
    except OSError as error:
        raise TlsError(f"cannot read {path}: {error.strerror}") from error


def _context(tls: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(_HTTP2)
    try:
        context.load_verify_locations(cadata=_read(tls.ca).decode("ascii", "replace"))
        if not context.get_ca_certs():
            raise TlsError(f"there is no CA certificate in {tls.ca}")
    except (ssl.SSLError, ValueError) as error:
        raise TlsError(f"there is no CA certificate in {tls.ca}: it is not PEM") from error
    if tls.certificate and tls.key:
        try:
            context.load_cert_chain(tls.certificate, tls.key)
        except (OSError, ssl.SSLError) as error:
            raise TlsError(
                f"{tls.certificate} and {tls.key} are not a certificate and its key: {error.strerror}"
            ) from error
    return context


def _try_handshake(connection: socket.socket, host: str, tls: TlsFiles | None) -> str | None:
    """Return the error that a handshake shows; None: no error."""
    try:
        # A context that only detects TLS: nothing is sent through it.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(_HTTP2)
        with (_context(tls) if tls else context).wrap_socket(connection, server_hostname=host) as secured:
            if tls is None:
                made = default_ca_file()
                where = f"; `collector certs init` has made {made}" if made.exists() else ""
                return f"it uses TLS; give its CA certificate by --ca-file (or {CA_FILE_VARIABLE}){where}"
            try:
                greeted = bool(secured.recv(1))
            except OSError:
                greeted = False
            if greeted:
                return None
            if tls.certificate is None:
                return "it requires a client certificate; give --client-cert and --client-key (`collector certs node`)"
            return f"it rejects the client certificate {tls.certificate}: from another CA, or expired"
    except ssl.SSLCertVerificationError as error:
        if error.verify_code == _EXPIRED:
            return "its certificate, or its CA's, has expired; renew it: collector certs rotate"
        if error.verify_code == _NOT_YET_VALID:
            return "its certificate is not valid yet; compare the clocks of both machines"
        if error.verify_code in (_WRONG_NAME, _WRONG_ADDRESS):
            return f"its certificate is not for {host}; use a name in it, or run: collector certs rotate --host {host}"
        ca = tls.ca if tls else None
        return f"its certificate is not from the CA in {ca}; copy the CA certificate of that collector"
    except ssl.SSLError:
        return None if tls is None else "it does not use TLS; leave --ca-file out, or serve it with a certificate"
