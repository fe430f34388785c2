"""How a client connects: with TLS where it was given a CA, and with words for what goes wrong there."""

import socket
import ssl
from collections.abc import Sequence
from pathlib import Path

import grpc

from gpuagent_common.connection import CA_FILE_VARIABLE, TlsError, TlsFiles, default_ca_file, host_and_port

Options = Sequence[tuple[str, int | str]]

_PROBE_SECONDS = 3.0
_HTTP2 = ["h2"]

_EXPIRED, _NOT_YET_VALID = 10, 9
# OpenSSL's numbers of what can be wrong with a certificate (X509_V_ERR_…).
_WRONG_NAME, _WRONG_ADDRESS = 62, 64


def open_channel(address: str, tls: TlsFiles | None, options: Options) -> grpc.Channel:
    """Return a channel to the collector at `address` (HOST:PORT); nothing is sent yet.

    Raises:
        TlsError: a file cannot be read.
    """
    if tls is None:
        return grpc.insecure_channel(address, options=options)
    return grpc.secure_channel(address, _credentials(tls), options=options)


def open_aio_channel(address: str, tls: TlsFiles | None, options: Options) -> grpc.aio.Channel:
    """Return the same for an event loop.

    Raises:
        TlsError: a file cannot be read.
    """
    if tls is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, _credentials(tls), options=options)


def why_unreachable(address: str, tls: TlsFiles | None) -> str | None:
    """Return why TLS fails, or is missing, at a place that takes connections; None: it is something else.

    What gRPC says of a handshake differs from version to version and leaves out the half, so another one is made with
    the standard library. It blocks for a few seconds at most.
    """
    place = host_and_port(address)
    if place is None:
        return None
    try:
        with socket.create_connection(place, timeout=_PROBE_SECONDS) as connection:
            return _try_handshake(connection, place[0], tls)
    except (OSError, TlsError):
        return None


def _credentials(tls: TlsFiles) -> grpc.ChannelCredentials:
    key = _read(tls.key, private=True) if tls.key else None
    certificate = _read(tls.certificate) if tls.certificate else None
    _context(tls)  # gRPC would say nothing of files that are no certificates
    return grpc.ssl_channel_credentials(_read(tls.ca), key, certificate)


def _read(path: Path, *, private: bool = False) -> bytes:
    try:
        if private and path.stat().st_mode & 0o007:
            raise TlsError(f"the key {path} can be read by everybody; run: chmod 600 {path}")
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
                f"{tls.certificate} and {tls.key} are no certificate and its key: {error.strerror}"
            ) from error
    return context


def _try_handshake(connection: socket.socket, host: str, tls: TlsFiles | None) -> str | None:
    """Return what a handshake shows to be wrong; None: nothing."""
    try:
        with (_context(tls) if tls else _trusting_context()).wrap_socket(connection, server_hostname=host) as secured:
            return _after_handshake(secured, tls)
    except ssl.SSLCertVerificationError as error:
        return _certificate_words(error, host, tls)
    except ssl.SSLError:
        return None if tls is None else "it speaks no TLS; leave --ca-file out, or have it serve with a certificate"


def _after_handshake(secured: ssl.SSLSocket, tls: TlsFiles | None) -> str | None:
    if tls is None:
        made = default_ca_file()
        where = f"; `collector certs init` put one in {made}" if made.exists() else ""
        return f"it speaks TLS; name its CA certificate by --ca-file (or {CA_FILE_VARIABLE}){where}"
    try:
        greeted = bool(secured.recv(1))
    except OSError:
        greeted = False
    if greeted:
        return None
    if tls.certificate is None:
        return "it wants a client's certificate; name one by --client-cert and --client-key (`collector certs node`)"
    return f"it does not accept the client's certificate {tls.certificate}: of another CA, or expired"


def _trusting_context() -> ssl.SSLContext:
    """Return what only finds out whether TLS is spoken: nothing is sent through it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(_HTTP2)
    return context


def _certificate_words(error: ssl.SSLCertVerificationError, host: str, tls: TlsFiles | None) -> str:
    if error.verify_code == _EXPIRED:
        return "its certificate, or its CA's, has expired; make a new one: collector certs rotate"
    if error.verify_code == _NOT_YET_VALID:
        return "its certificate is not valid yet; compare the clocks of both machines"
    if error.verify_code in (_WRONG_NAME, _WRONG_ADDRESS):
        return f"its certificate is not for {host}; connect by a name in it, or: collector certs rotate --host {host}"
    ca = tls.ca if tls else None
    return f"its certificate does not come from the CA in {ca}; copy the CA certificate of that collector"
