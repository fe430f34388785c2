"""Options that say which collector, and how it is reached."""

from pathlib import Path
from typing import Any

import click

from gpuagent.delivery.joined import Joined
from gpuagent_common.connection import (
    ADDRESS_VARIABLE,
    CA_FILE_VARIABLE,
    CLIENT_CERT_VARIABLE,
    CLIENT_KEY_VARIABLE,
    DEFAULT_ADDRESS,
    TOKEN_FILE_VARIABLE,
    TlsFiles,
    default_token_file,
    host_and_port,
    tls_files,
)
from gpuagent_common.errors import MisuseError

_FILE = click.Path(path_type=Path, dir_okay=False)

CLIENT_CERTIFICATE_OPTIONS = (
    click.option(
        "--client-cert",
        type=_FILE,
        envvar=CLIENT_CERT_VARIABLE,
        help=f"Certificate to show where the collector asks for one (or {CLIENT_CERT_VARIABLE}).",
    ),
    click.option(
        "--client-key",
        type=_FILE,
        envvar=CLIENT_KEY_VARIABLE,
        help=f"That certificate's key (or {CLIENT_KEY_VARIABLE}).",
    ),
)

CONNECTION_OPTIONS = (
    click.option(
        "--collector",
        metavar="HOST:PORT",
        envvar=ADDRESS_VARIABLE,
        help=f"Where the collector listens (or {ADDRESS_VARIABLE}); by default the one that was joined, or else "
        f"{DEFAULT_ADDRESS}.",
    ),
    click.option(
        "--token-file",
        type=_FILE,
        envvar=TOKEN_FILE_VARIABLE,
        help=f"The collector's token (or {TOKEN_FILE_VARIABLE}); by default that of `gpuagent join`, or else where "
        "`collector serve` puts it.",
    ),
    click.option(
        "--ca-file",
        type=_FILE,
        envvar=CA_FILE_VARIABLE,
        help="Speak TLS, and only with a collector whose certificate comes from this CA "
        f"(or {CA_FILE_VARIABLE}); by default that of `gpuagent join`.",
    ),
    *CLIENT_CERTIFICATE_OPTIONS,
)


def take_connection(options: dict[str, Any]) -> tuple[str, Path, TlsFiles | None]:
    """Return the collector's address, the token file and what TLS needs; takes their options out of `options`.

    What `gpuagent join` left is for the collector that was joined: its token is shown to no other.

    Raises:
        MisuseError: the options contradict each other, or the address is none.
        GpuAgentError: what was left cannot be read.
    """
    joined = Joined.usual()
    home = joined.collector
    address = _checked(options.pop("collector") or home or DEFAULT_ADDRESS)
    token_file, ca = options.pop("token_file"), options.pop("ca_file")
    certificate, key = options.pop("client_cert"), options.pop("client_key")
    if address == home:
        token_file = token_file or joined.token
        kept = joined.tls
        if kept is not None:
            ca = ca or kept.ca
            certificate, key = (certificate, key) if certificate or key else (kept.certificate, kept.key)
    return address, token_file or default_token_file(), checked_tls(ca, certificate, key)


def checked_tls(ca: Path | None, certificate: Path | None, key: Path | None) -> TlsFiles | None:
    """Return what options name for TLS; None: nothing.

    Raises:
        MisuseError: they contradict each other.
    """
    try:
        return tls_files(ca, certificate, key)
    except ValueError as error:
        raise MisuseError(str(error)) from error


def _checked(addresses: str) -> str:
    for address in addresses.split(","):
        check_address(address, "--collector")
    return addresses


def check_address(address: str, option: str) -> None:
    """Refuse what is no HOST:PORT.

    Raises:
        MisuseError: it is none; says so of `option`.
    """
    if host_and_port(address) is None:
        raise MisuseError(f"{option} takes HOST:PORT, as {DEFAULT_ADDRESS}; not {address!r}")
