"""`collector certs`: a small CA, for collectors that other machines reach."""

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuagent_common.connection import CA_FILE_VARIABLE

if TYPE_CHECKING:
    from gpuagent_collector.trust.certificate_folder import CertificateFolder

_FOLDER = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where they are kept.  [default: ~/.config/gpuagent/tls]",
)

_HOST = click.option(
    "--host", "hosts", metavar="NAME", multiple=True, help="What the collector is reached by; can be repeated."
)

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@click.group()
def command() -> None:
    """Make the certificates of a collector that other machines reach.

    For a site without a CA of its own. Certificates of any other CA serve as well: `collector serve --tls-cert FILE
    --tls-key FILE`.
    """


@command.command(
    epilog="""\b
Examples:
  collector certs init
  collector certs init --host collector.example.org --host 10.0.0.7"""
)
@_FOLDER
@_HOST
def init(folder: Path | None, hosts: tuple[str, ...]) -> None:
    """Make a CA, and a server's certificate.

    It is for the names given by --host, or this host's; always for loopback as well. The CA's key stays here: nothing
    but the two other commands needs it.
    """
    made = _open(folder)
    names = [*(hosts or _own_names()), *_LOOPBACK]
    made.init(list(dict.fromkeys(names)))
    click.echo(f"CA certificate, for clients: {made.ca}")
    click.echo(f"server certificate: {made.server.certificate}, for {', '.join(dict.fromkeys(names))}")
    if folder is None:
        click.echo("next: collector serve --listen 0.0.0.0:50051")
    else:
        click.echo(
            f"next: collector serve --listen 0.0.0.0:50051 --tls-cert {made.server.certificate} "
            f"--tls-key {made.server.key}"
        )
    click.echo(f"commands on this machine then need: export {CA_FILE_VARIABLE}={made.ca}")


@command.command(
    epilog="""\b
Examples:
  collector certs rotate
  collector certs rotate --host collector.example.org"""
)
@_FOLDER
@_HOST
def rotate(folder: Path | None, hosts: tuple[str, ...]) -> None:
    """Make a new server's certificate of the same CA.

    It is for what the one before was for, and what --host adds. A running collector shows it from the next connection
    on; clients need nothing.
    """
    made = _open(folder)
    names = made.rotate(hosts)
    click.echo(f"server certificate: {made.server.certificate}, for {', '.join(names)}")


@command.command(
    epilog="""\b
Examples:
  collector certs node gpu-7
  collector serve --listen 0.0.0.0:50051 --tls-client-ca ~/.config/gpuagent/tls/ca.crt"""
)
@_FOLDER
@click.argument("name")
def node(folder: Path | None, name: str) -> None:
    """Make a certificate that the client NAME shows, for mutual TLS.

    A collector that is served with --tls-client-ca takes no connection without one. Tokens are needed all the same: a
    certificate lets in, a token says as whom.
    """
    files = _open(folder).issue_client(name)
    click.echo(f"copy to {name}, for --client-cert and --client-key: {files.certificate} {files.key}")


def _open(folder: Path | None) -> "CertificateFolder":
    from gpuagent_collector.trust.certificate_folder import CertificateFolder

    return CertificateFolder(path=folder.absolute()) if folder else CertificateFolder.usual()


def _own_names() -> list[str]:
    name = socket.gethostname()
    full = socket.getfqdn()
    return [name] if full in (name, "localhost") else [full, name]
