"""`collector tokens`: who may enter, and for what."""

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuagent_collector.cli.options import format_options
from gpuagent_collector.output.formats import OutputFormat
from gpuagent_common.connection import (
    CA_FILE_VARIABLE,
    TOKEN_FILE_VARIABLE,
    default_ca_file,
    default_token_file,
)
from gpuagent_common.errors import GpuAgentError, MisuseError

if TYPE_CHECKING:
    from gpuagent_collector.trust.tokens import Token, TokenFile

_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_MAX_DIGITS = 5

_TOKEN_FILE = click.option(
    "--token-file",
    envvar=TOKEN_FILE_VARIABLE,
    show_envvar=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The owner's token, beside which the others are kept.  [default: ~/.config/gpuagent/token]",
)


@click.group()
def command() -> None:
    """Make and revoke tokens.

    Of a token only its hash is kept, beside the owner's token file, so these commands are given where the collector
    runs and by the user who runs it. A running collector follows at once.
    """


@command.command(
    epilog="""\b
Examples:
  collector tokens create agent --node gpu-7 | ssh gpu-7 gpuagent join collector.example.org:50051
  collector tokens create agent --name daemonset --any-node --expires 90d --output join.txt
  collector tokens create viewer --name dashboard --expires 52w --output dashboard.token
  collector tokens create viewer --name vision --platform satori --label team=vision --output vision.token"""
)
@click.argument("scope", type=click.Choice(["agent", "viewer", "operator"]))
@click.option("--name", help="What to call it.  [default: the node's name]")
@click.option("--node", metavar="NAME", help="An agent's: the node that may use it, by hostname or UUID.")
@click.option("--any-node", is_flag=True, help="An agent's that every node may use, as a DaemonSet's.")
@click.option(
    "--platform",
    "platforms",
    metavar="NAME",
    multiple=True,
    help="A viewer's: show only this; can be given several times.",
)
@click.option(
    "--label",
    "labels",
    metavar="K=V",
    multiple=True,
    help="A viewer's: show only agents and runs that were started with this label; of several of one key, any of them.",
)
@click.option("--expires", metavar="TIME", help="How long it is valid, as 12h, 90d or 52w.  [default: until revoked]")
@click.option(
    "--ca-file",
    envvar=CA_FILE_VARIABLE,
    show_envvar=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The CA's certificate to hand out with it.  [default: that of `collector certs init`, if there]",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write it to this file, which only you can read, instead of printing it.",
)
@_TOKEN_FILE
def create(
    *,
    scope: str,
    name: str | None,
    node: str | None,
    any_node: bool,
    platforms: tuple[str, ...],
    labels: tuple[str, ...],
    expires: str | None,
    ca_file: Path | None,
    output: Path | None,
    token_file: Path | None,
) -> None:
    """Make a token, and print it with the CA's certificate.

    An agent's writes what its node measures, and nothing else; without --node or --any-node it belongs to the first
    node that uses it. A viewer's reads, by --platform and --label only what those agents measured, and runs that have
    the label themselves; an operator's may do everything.

    What is printed is for a pipe, or by --output for a file, which serves as --token-file and --ca-file both; it is
    shown this once.
    """
    from gpuagent_collector.trust.reach import Reach
    from gpuagent_collector.trust.scopes import Scope

    if not (name or node):
        raise MisuseError("what is it to be called? give it a --name")
    if output and (output.is_symlink() or (output.exists() and not output.is_file())):
        raise MisuseError(f"--output takes a file, which {output} is not")
    lifetime, reach = _lifetime(expires) if expires else None, Reach.parse(platforms, labels)
    certificate = _certificate(ca_file)
    tokens, called = _tokens(token_file), name or node or ""
    token = tokens.create(Scope(scope), called, node=node, any_node=any_node, reach=reach, lifetime=lifetime)
    try:
        _hand_out(f"{token}\n{certificate}", output)
    except GpuAgentError:
        tokens.revoke(called)
        raise
    if not certificate:
        click.echo("collector: no CA certificate goes with it; without TLS anybody on the way can read it", err=True)


def _hand_out(text: str, output: Path | None) -> None:
    from gpuagent_collector.trust.private_files import write_private

    if output is None:
        click.echo(text, nl=False)
    else:
        write_private(output, text.encode())
        click.echo(f"written to {output}, which only you can read")


@command.command("list", epilog="\b\nExamples:\n  collector tokens list\n  collector tokens list --json")
@format_options
@_TOKEN_FILE
def list_tokens(*, output_format: OutputFormat, token_file: Path | None) -> None:
    """List the tokens, without what they are."""
    rows = [_row(token) for token in _tokens(token_file).all()]
    if output_format is OutputFormat.TABLE:
        _print_for_people(rows)
    else:
        import pyarrow as pa

        from gpuagent_collector.output.printing import print_table

        types: dict[str, pa.DataType] = dict.fromkeys(("name", "scope", "sees", "state", "node"), pa.string())
        types |= dict.fromkeys(("expires_at", "created_at"), pa.timestamp("us"))
        print_table(pa.Table.from_pylist(rows, pa.schema(types)), output_format)


@command.command(epilog="\b\nExamples:\n  collector tokens revoke gpu-7")
@click.argument("name")
@_TOKEN_FILE
def revoke(*, name: str, token_file: Path | None) -> None:
    """Make the token NAME useless, at once, and end what it has open."""
    token = _tokens(token_file).revoke(name)
    click.echo(f"revoked the {token.scope.value}'s token {name}")


def _tokens(token_file: Path | None) -> "TokenFile":
    from gpuagent_collector.trust.tokens import TokenFile

    return TokenFile.beside(token_file or default_token_file())


def _row(token: "Token") -> dict[str, Any]:
    from gpuagent_collector.times import utc_now

    return {
        "name": token.name,
        "scope": token.scope.value,
        "sees": str(token.reach) if token.reach else None,
        "state": "expired" if token.has_expired(utc_now()) else "valid",
        "node": "any" if token.any_node else token.node or token.bound_to,
        "expires_at": token.expires_at,
        "created_at": token.created_at,
    }


def _print_for_people(rows: Sequence[Mapping[str, Any]]) -> None:
    from gpuagent_collector.output.listing import ListColumn, print_list
    from gpuagent_collector.output.terminal import plain_console

    if not rows:
        click.echo("no tokens but the owner's; make one: collector tokens create agent --node NAME")
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


def _lifetime(text: str) -> timedelta:
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not number.isdecimal() or len(number) > _MAX_DIGITS or int(number) == 0:
        raise MisuseError(f"--expires takes a number and h, d or w, as 90d, not {text!r}")
    return int(number) * _UNITS[unit]


def _certificate(ca_file: Path | None) -> str:
    path = ca_file or default_ca_file()
    if ca_file is None and not path.exists():
        return ""
    try:
        certificate = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise GpuAgentError(f"cannot read the CA certificate {path}: {error}") from error
    if "BEGIN CERTIFICATE" not in certificate or "PRIVATE KEY" in certificate:
        raise MisuseError(f"{path} is no CA certificate")
    return certificate
