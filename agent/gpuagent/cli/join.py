"""`gpuagent join`: store a collector's address, token and CA for this user."""

import asyncio
import contextlib
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuagent.cli.options import CLIENT_CERTIFICATE_OPTIONS, check_address, find_node_name, identity_options
from gpuagent.delivery.joined import MAX_JOIN_CHARACTERS, Joined
from gpuagent_common.connection import tls_files
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.waiting import waiting_for

if TYPE_CHECKING:
    from gpuagent.delivery.uplink import Access

_ANSWER_SECONDS = 15.0
_CONNECT = "/gpuagent_proto.v1.TelemetryService/Connect"


@click.command(
    epilog="""\b
Examples:
  collector tokens create agent --node gpu-7 | \\
      ssh gpu-7 gpuagent join collector.example.org:50051
  gpuagent join collector.example.org:50051 --join-file join.txt"""
)
@click.argument("address", metavar="HOST:PORT")
@click.option(
    "--join-file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    show_default="standard input",
    help="Output of `collector tokens create agent`.",
)
@CLIENT_CERTIFICATE_OPTIONS[0]
@CLIENT_CERTIFICATE_OPTIONS[1]
@identity_options
def command(
    *,
    address: str,
    join_file: Path | None,
    client_cert: Path | None,
    client_key: Path | None,
    spool: Path | None,
    node_id: str | None,
    node_name: str | None,
) -> None:
    """Join a collector: store its token and certificate.

    The collector checks the token, and copies go to ~/.config/gpuagent/agent. From then on `gpuagent start` and
    `gpuagent run` deliver to HOST:PORT; --collector overrides it.
    """
    from gpuagent.agent_config import find_node
    from gpuagent.delivery.uplink import Access

    check_address(address, "join")
    text = _join_text(join_file)
    _, node_uuid = find_node(spool, node_id)
    name = find_node_name(node_name, node_id)
    with tempfile.TemporaryDirectory(prefix="gpuagent-join-") as folder:
        tried = Joined(folder=Path(folder) / "tried")
        tried.keep(address, text)
        tls = tls_files(tried.ca if tried.ca.exists() else None, client_cert, client_key)
        with waiting_for("gpuagent", f"the answer of the collector at {address}"):
            asyncio.run(_greet(Access(address=address, token_file=tried.token, tls=tls), node_uuid, name))
    joined = Joined.usual()
    joined.keep(address, text, tls)
    unencrypted = "" if joined.ca.exists() else ", unencrypted"
    click.echo(f"joined the collector at {address}{unencrypted}; token kept in {joined.token}")
    click.echo("next: gpuagent start")


def _join_text(join_file: Path | None) -> str:
    if join_file is None and sys.stdin.isatty():
        click.echo("paste the output of `collector tokens create agent`, then Ctrl-D:", err=True)
    try:
        with contextlib.ExitStack() as opened:
            file = opened.enter_context(join_file.open()) if join_file else sys.stdin
            text = file.read(MAX_JOIN_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise GpuAgentError(f"cannot read the token: {error}") from error
    if len(text) > MAX_JOIN_CHARACTERS or not text.strip():
        raise MisuseError("give the output of `collector tokens create agent` on standard input or by --join-file")
    return text


async def _greet(access: "Access", node_uuid: str, name: str) -> None:
    """Introduce this node to the collector, which binds the token to it.

    Raises GpuAgentError: the collector refuses, or does not answer.
    """
    import grpc

    from gpuagent import __version__
    from gpuagent_proto.v1 import PROTOCOL_VERSION
    from gpuagent_proto.v1.telemetry_pb2 import AgentMessage, CollectorMessage, Hello

    hello = Hello(protocol_version=PROTOCOL_VERSION, agent_version=__version__, node_uuid=node_uuid, hostname=name)
    async with access.channel([("grpc.enable_http_proxy", 0)]) as channel:
        # A single request: of a stream of them, gRPC loses the reason of a refusal that arrives during the first.
        connect = channel.unary_stream(
            _CONNECT,
            request_serializer=AgentMessage.SerializeToString,
            response_deserializer=CollectorMessage.FromString,
        )
        call = connect(AgentMessage(hello=hello), metadata=access.metadata(), timeout=_ANSWER_SECONDS)
        try:
            await call.read()
        except grpc.aio.AioRpcError as error:
            reason = access.explain(error) or "the collector ended the connection; try again"
            if error.code() == grpc.StatusCode.UNAUTHENTICATED:
                reason = f"the collector at {access.address} does not accept this token"
                reason += ": expired, revoked, or another collector's"
            raise GpuAgentError(reason) from error
        call.cancel()
