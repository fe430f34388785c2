"""Options for the collector's address, token and TLS."""

from collections.abc import Callable
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
    default_ca_file,
    default_token_file,
    host_and_port,
    tls_files,
)
from gpuagent_common.errors import MisuseError

_FILE = click.Path(path_type=Path, dir_okay=False)


def env_option(name: str, variable: str, **settings: Any) -> Callable[[Any], Any]:
    """Return an option that an environment variable can set, which its help names."""
    return click.option(name, envvar=variable, show_envvar=True, **settings)


CLIENT_CERTIFICATE_OPTIONS = (
    env_option("--client-cert", CLIENT_CERT_VARIABLE, type=_FILE, help="Certificate to present to the collector."),
    env_option("--client-key", CLIENT_KEY_VARIABLE, type=_FILE, help="Private key of --client-cert."),
)

CONNECTION_OPTIONS = (
    env_option(
        "--collector",
        ADDRESS_VARIABLE,
        metavar="HOST:PORT",
        help="Address of the collector.",
        show_default=f"the joined one, or {DEFAULT_ADDRESS}",
    ),
    env_option(
        "--token-file",
        TOKEN_FILE_VARIABLE,
        type=_FILE,
        help="Token for the collector.",
        show_default="that of `gpuagent join`, or of `collector serve`",
    ),
    env_option(
        "--ca-file",
        CA_FILE_VARIABLE,
        type=_FILE,
        help="CA of the collector's certificate; turns on TLS.",
        show_default="that of `gpuagent join`",
    ),
    *CLIENT_CERTIFICATE_OPTIONS,
)


def take_connection(options: dict[str, Any]) -> tuple[str, Path, TlsFiles | None]:
    """Remove the connection's options from `options`; return the collector's address, the token file and TLS files.

    The files of `gpuagent join` are for the joined collector only: no other is shown its token.

    Raises:
        MisuseError: the options contradict each other, or an address is not HOST:PORT.
        GpuAgentError: the files of `gpuagent join` cannot be read.
    """
    joined = Joined.usual()
    home = joined.collector
    given = options.pop("collector")
    address = (home or DEFAULT_ADDRESS) if given is None else given
    for one in address.split(","):
        check_address(one, "--collector")
    token_file, ca = options.pop("token_file"), options.pop("ca_file")
    certificate, key = options.pop("client_cert"), options.pop("client_key")
    if address == home:
        token_file = token_file or joined.token
        kept = joined.tls
        if kept is not None:
            ca = ca or kept.ca
            certificate, key = (certificate, key) if certificate or key else (kept.certificate, kept.key)
    tls = checked_tls(ca, certificate, key)
    if tls is None and default_ca_file().is_file():
        from gpuagent_common.channel import find_local_tls  # gRPC, which help needs not

        # On the machine of `collector certs init`, its CA is found as its token is.
        tls = find_local_tls(address)
    return address, token_file or default_token_file(), tls


def checked_tls(ca: Path | None, certificate: Path | None, key: Path | None) -> TlsFiles | None:
    """Return the files for TLS; None: no option names one.

    Raises:
        MisuseError: the options contradict each other.
    """
    try:
        return tls_files(ca, certificate, key)
    except ValueError as error:
        raise MisuseError(str(error)) from error


def check_address(address: str, option: str) -> None:
    """Check that an address is HOST:PORT.

    Raises:
        MisuseError: it is not; names `option`.
    """
    if host_and_port(address) is None:
        raise MisuseError(f"{option} takes HOST:PORT, such as {DEFAULT_ADDRESS}; not {address!r}")
