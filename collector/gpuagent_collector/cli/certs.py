"""`collector certs`: a small CA for collectors on a network."""

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuagent_common.cli import SuggestingGroup
from gpuagent_common.connection import CA_FILE_VARIABLE

if TYPE_CHECKING:
    from gpuagent_collector.trust.serving import CertificateFolder

_FOLDER = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the CA.  [default: ~/.config/gpuagent/tls]",
)

_HOST = click.option(
    "--host", "hosts", metavar="NAME", multiple=True, help="A name or address of the collector; repeatable."
)

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@click.group(cls=SuggestingGroup)
def command() -> None:
    """Make TLS certificates for a collector.

    For a site without a CA of its own. Certificates of any other CA work as well: `collector serve --tls-cert FILE
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
    """Make a CA and a server certificate.

    The certificate is for the names given by --host, or this host's, and always for loopback. The CA's key stays here;
    only the two other commands need it.
    """
    made = _open(folder)
    names = [*(hosts or _own_names()), *_LOOPBACK]
    made.init(list(dict.fromkeys(names)))
    click.echo(f"CA certificate for clients: {made.ca}")
    click.echo(f"server certificate: {made.server.certificate}, for {', '.join(dict.fromkeys(names))}")
    files = f" --tls-cert {made.server.certificate} --tls-key {made.server.key}" if folder else ""
    click.echo(f"next: collector serve --listen 0.0.0.0:50051{files}")
    if folder:
        click.echo(f"for commands on this machine: export {CA_FILE_VARIABLE}={made.ca}")


@command.command(
    epilog="""\b
Examples:
  collector certs rotate
  collector certs rotate --host collector.example.org"""
)
@_FOLDER
@_HOST
def rotate(folder: Path | None, hosts: tuple[str, ...]) -> None:
    """Renew the server certificate from the same CA.

    The new certificate has the names of the old one and those that --host adds. A running collector uses it from the
    next connection on; clients need no change.
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
    """Make a client certificate for NAME, for mutual TLS.

    A collector with --tls-client-ca accepts no connection without one. A token is needed as well: the certificate
    allows the connection, the token identifies the client.
    """
    files = _open(folder).issue_client(name)
    click.echo(f"copy to {name} for --client-cert and --client-key: {files.certificate} {files.key}")


def _open(folder: Path | None) -> "CertificateFolder":
    from gpuagent_collector.trust.serving import CertificateFolder

    return CertificateFolder(path=folder.absolute()) if folder else CertificateFolder.usual()


def _own_names() -> list[str]:
    name = socket.gethostname()
    full = socket.getfqdn()
    return [name] if full in (name, "localhost") else [full, name]
