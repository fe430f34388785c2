"""The commands of trust: `collector tokens`, which makes and revokes tokens, and `collector certs`, a small CA."""

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuagent_collector.cli.options import file_option, format_options, node_option, parse_time
from gpuagent_collector.cli.printing import print_error
from gpuagent_collector.present.formats import OutputFormat
from gpuagent_common.cli import NAME, SuggestingGroup
from gpuagent_common.connection import CA_FILE_VARIABLE, TOKEN_FILE_VARIABLE, default_ca_file, default_token_file
from gpuagent_common.errors import GpuAgentError, MisuseError

if TYPE_CHECKING:
    from gpuagent_collector.trust.serving import CertificateFolder
    from gpuagent_collector.trust.tokens import TokenFile

_TOKEN_FILE = file_option(
    "--token-file",
    TOKEN_FILE_VARIABLE,
    "The owner's token file, beside the others.  [default: ~/.config/gpuagent/token]",
)


@click.group(cls=SuggestingGroup)
def tokens() -> None:
    """Make and revoke tokens of agents, viewers and operators.

    Only the hash of a token is stored, beside the owner's token file. Run these commands on the collector's machine, as
    its user. A running collector applies changes at once.
    """


@tokens.command(
    epilog="""\b
Examples:
  collector tokens create agent --node gpu-7 | ssh gpu-7 gpuagent join head:50051
  collector tokens create agent --nodes nodes.txt -o joining/
  collector tokens create agent --name daemonset --any-node -o join.txt
  collector tokens create viewer --name dashboard --expires 52w -o viewer.token
  collector tokens create viewer --name vision --label team=vision -o vision.token"""
)
@click.argument("scope", type=click.Choice(["agent", "viewer", "operator"]))
@click.option("--name", type=NAME, help="Name of the token.  [default: the node's name]")
@node_option("For an agent: the only node to use it (hostname or UUID).")
@click.option(
    "--nodes",
    "nodes_file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="For agents: a token for each line, as NODE in --output DIR.",
)
@click.option("--any-node", is_flag=True, help="For agents: let every node use it, as in a DaemonSet.")
@click.option(
    "--platform",
    "platforms",
    type=NAME,
    metavar="NAME",
    multiple=True,
    help="For a viewer: show only this platform; repeatable.",
)
@click.option(
    "--label",
    "labels",
    metavar="K=V",
    multiple=True,
    help="For a viewer: show only agents and runs with this label; repeatable.",
)
@click.option("--expires", metavar="TIME", help="Validity, such as 12h, 90d or 52w.  [default: until revoked]")
@file_option(
    "--ca-file", CA_FILE_VARIABLE, "CA certificate to print with it.  [default: that of `collector certs init`]"
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    help="Write to this file, readable by you alone, instead of stdout.",
)
@_TOKEN_FILE
def create(
    *,
    scope: str,
    name: str | None,
    node: str | None,
    nodes_file: Path | None,
    any_node: bool,
    platforms: tuple[str, ...],
    labels: tuple[str, ...],
    expires: str | None,
    ca_file: Path | None,
    output: Path | None,
    token_file: Path | None,
) -> None:
    """Make a token, and print it with the CA certificate.

    An agent's token writes the data of its node, and nothing else; without --node or --any-node it is bound to the
    first node that uses it. A viewer's token reads, limited by --platform and --label (several values of one key are
    alternatives). An operator's token allows everything.

    The token is printed once, for a pipe or for a file of --output, which serves both as --token-file and --ca-file.
    """
    from gpuagent_collector.trust.private_files import write_private
    from gpuagent_collector.trust.tokens import Reach, Scope

    if nodes_file:
        if scope != "agent" or name or node or any_node or output is None:
            raise MisuseError("--nodes is for agents, with --output DIR, and without --name, --node and --any-node")
        nodes = [line.strip() for line in nodes_file.read_text().splitlines()]
        _create_all([each for each in nodes if each and not each.startswith("#")], output, expires, ca_file, token_file)
        return
    if not (name or node):
        needed = "--node NODE" if scope == "agent" and not any_node else "--name NAME"
        raise MisuseError(f"the token needs a name; give {needed}")
    if output and (output.is_symlink() or (output.exists() and not output.is_file())):
        raise MisuseError(f"--output takes a regular file; not {output}")
    lifetime, reach = parse_time("--expires", expires) if expires else None, Reach.parse(platforms, labels)
    certificate = _certificate(ca_file)
    tokens, called = _tokens(token_file), name or node or ""
    token = tokens.create(Scope(scope), called, node=node, any_node=any_node, reach=reach, lifetime=lifetime)
    try:
        if output is None:
            click.echo(f"{token}\n{certificate}", nl=False)
        else:
            write_private(output, f"{token}\n{certificate}".encode())
            click.echo(f"written to {output}, readable by you alone")
    except GpuAgentError:
        tokens.revoke(called)
        raise
    if not certificate:
        print_error("the token has no CA certificate with it; without TLS everybody on the network can read it")


def _create_all(
    nodes: Sequence[str], folder: Path, expires: str | None, ca_file: Path | None, token_file: Path | None
) -> None:
    """Write a token for each node into a file of its name; a node whose file is there keeps its token."""
    from gpuagent_collector.trust.private_files import write_private
    from gpuagent_collector.trust.tokens import Scope

    if odd := [node for node in nodes if Path(node).name != node or node.startswith(".")]:
        raise MisuseError(f"a node's name must be a valid file name; not {odd[0]!r}")
    lifetime = parse_time("--expires", expires) if expires else None
    certificate, tokens, made = _certificate(ca_file), _tokens(token_file), 0
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for node in dict.fromkeys(nodes):
        if (folder / node).exists():
            continue
        token = tokens.create(Scope.AGENT, node, node=node, any_node=False, reach=None, lifetime=lifetime)
        try:
            write_private(folder / node, f"{token}\n{certificate}".encode())
        except GpuAgentError:
            tokens.revoke(node)
            raise
        made += 1
    click.echo(f"{folder}: {made:,} tokens written, {len(set(nodes)) - made:,} were there")
    if not certificate:
        print_error("the tokens have no CA certificate with them; without TLS everybody can read them")


@tokens.command("list", epilog="\b\nExamples:\n  collector tokens list\n  collector tokens list --json")
@format_options
@_TOKEN_FILE
def list_tokens(*, output_format: OutputFormat, token_file: Path | None) -> None:
    """List the tokens' names, scopes and states."""
    from gpuagent_collector.times import utc_now

    rows = []
    for token in _tokens(token_file).all():
        row = {"name": token.name, "scope": token.scope.value, "sees": str(token.reach) if token.reach else None}
        row |= {"state": "expired" if token.has_expired(utc_now()) else "valid"}
        row |= {"node": "any" if token.any_node else token.node or token.bound_to}
        rows.append({**row, "expires_at": token.expires_at, "created_at": token.created_at})
    if output_format is OutputFormat.TABLE:
        _print_for_people(rows)
    else:
        import pyarrow as pa

        from gpuagent_collector.present.data import print_table

        types: dict[str, pa.DataType] = dict.fromkeys(("name", "scope", "sees", "state", "node"), pa.string())
        types |= dict.fromkeys(("expires_at", "created_at"), pa.timestamp("us"))
        print_table(pa.Table.from_pylist(rows, pa.schema(types)), output_format)


@tokens.command(epilog="\b\nExamples:\n  collector tokens revoke gpu-7")
@click.argument("name")
@_TOKEN_FILE
def revoke(*, name: str, token_file: Path | None) -> None:
    """Revoke the token NAME at once, and end its streams."""
    token = _tokens(token_file).revoke(name)
    click.echo(f"revoked the {token.scope.value}'s token {name}")


def _tokens(token_file: Path | None) -> "TokenFile":
    from gpuagent_collector.trust.tokens import TokenFile

    return TokenFile.beside(token_file or default_token_file())


def _print_for_people(rows: Sequence[Mapping[str, Any]]) -> None:
    from gpuagent_collector.present.terminal import ListColumn, plain_console, print_list

    if not rows:
        click.echo("no tokens besides the owner's; make one: collector tokens create agent --node NAME")
        return
    columns = [
        ListColumn(title="name", show=lambda row: row["name"], rank=0, max_width=30),
        ListColumn(title="scope", show=lambda row: row["scope"], rank=1),
        ListColumn(title="state", show=lambda row: row["state"], rank=2),
        ListColumn(title="node", show=lambda row: row["node"], rank=4, max_width=36),
        ListColumn(title="sees only", show=lambda row: row["sees"], rank=2, max_width=36),
        ListColumn(title="expires", show=lambda row: _day(row["expires_at"]), rank=3),
        ListColumn(title="created", show=lambda row: _day(row["created_at"]), rank=5),
    ]
    print_list(columns, rows, plain_console(sys.stdout))


def _day(time: datetime | None) -> str | None:
    return None if time is None else f"{time:%Y-%m-%d %H:%M} UTC"


def _certificate(ca_file: Path | None) -> str:
    path = ca_file or default_ca_file()
    if ca_file is None and not path.exists():
        return ""
    try:
        certificate = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise GpuAgentError(f"cannot read the CA certificate {path}: {error}") from error
    if "BEGIN CERTIFICATE" not in certificate or "PRIVATE KEY" in certificate:
        raise MisuseError(f"{path} is not a CA certificate; give --ca-file")
    return certificate


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
def certs() -> None:
    """Make TLS certificates for a collector.

    For a site without a CA of its own. Certificates of any other CA work as well: `collector serve --tls-cert FILE
    --tls-key FILE`.
    """


@certs.command(
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
    import socket  # which no other of these commands needs

    made = _open(folder)
    name, full = socket.gethostname(), socket.getfqdn()
    own = [name] if full in (name, "localhost") else [full, name]
    names = [*(hosts or own), *_LOOPBACK]
    made.init(list(dict.fromkeys(names)))
    click.echo(f"CA certificate for clients: {made.ca}")
    click.echo(f"server certificate: {made.server.certificate}, for {', '.join(dict.fromkeys(names))}")
    files = f" --tls-cert {made.server.certificate} --tls-key {made.server.key}" if folder else ""
    click.echo(f"next: collector serve --listen 0.0.0.0:50051{files}")
    if folder:
        click.echo(f"for commands on this machine: export {CA_FILE_VARIABLE}={made.ca}")


@certs.command(
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


@certs.command(
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
