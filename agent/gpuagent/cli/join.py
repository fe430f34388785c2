"""`gpuagent join`: make a collector this user's, with a token and the CA to trust."""

import asyncio
import contextlib
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuagent.cli.connection import CLIENT_CERTIFICATE_OPTIONS, check_address, checked_tls
from gpuagent.cli.options import identity_options
from gpuagent.delivery.joined import MAX_JOIN_CHARACTERS, Joined
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.naming import check_name

if TYPE_CHECKING:
    from grpc.aio import AioRpcError, Channel

    from gpuagent.delivery.connecting import Access
    from gpuagent_proto.v1.telemetry_pb2 import AgentMessage

_ANSWER_SECONDS = 15.0
_ATTEMPTS = 3


@click.command(
    epilog="""\b
Examples:
  collector tokens create agent --node gpu-7 | ssh gpu-7 gpuagent join collector.example.org:50051
  gpuagent join collector.example.org:50051 --join-file join.txt"""
)
@click.argument("address", metavar="HOST:PORT")
@click.option(
    "--join-file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="What `collector tokens create agent` printed; by default it is read from standard input.",
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
    """Join the collector at HOST:PORT.

    Checks token and certificates with the collector, and keeps copies in ~/.config/gpuagent/agent. From then on
    `gpuagent start` and `gpuagent run` deliver there by themselves; --collector takes them elsewhere.
    """
    from gpuagent.agent_config import find_node
    from gpuagent.delivery.connecting import Access

    check_address(address, "join")
    text = _join_text(join_file)
    _, node_uuid = find_node(spool, node_id)
    name = check_name(node_name or os.uname().nodename, "--node-name")
    with tempfile.TemporaryDirectory(prefix="gpuagent-join-") as folder:
        tried = Joined(folder=Path(folder) / "tried")
        tried.keep(address, text)
        tls = checked_tls(tried.ca if tried.ca.exists() else None, client_cert, client_key)
        asyncio.run(_greet(Access(address=address, token_file=tried.token, tls=tls), node_uuid, name))
    joined = Joined.usual()
    joined.keep(address, text, tls)
    secured = "" if joined.ca.exists() else ", unencrypted"
    click.echo(f"joined the collector at {address}{secured}; token kept in {joined.token}")
    click.echo("next: gpuagent start")


def _join_text(join_file: Path | None) -> str:
    if join_file is None and sys.stdin.isatty():
        click.echo("paste what `collector tokens create agent` printed, then Ctrl-D:", err=True)
    try:
        with contextlib.ExitStack() as opened:
            file = opened.enter_context(join_file.open()) if join_file else sys.stdin
            text = file.read(MAX_JOIN_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise GpuAgentError(f"cannot read the token: {error}") from error
    if len(text) > MAX_JOIN_CHARACTERS or not text.strip():
        raise MisuseError("give what `collector tokens create agent` printed, on standard input or as --join-file")
    return text


async def _greet(access: "Access", node_uuid: str, name: str) -> None:
    """Say hello to the collector, which binds the token to this node, and go.

    Raises:
        GpuAgentError: it refuses, or does not answer.
    """
    import grpc

    from gpuagent import __version__
    from gpuagent_proto.v1 import PROTOCOL_VERSION
    from gpuagent_proto.v1.telemetry_pb2 import AgentMessage, Hello

    hello = Hello(protocol_version=PROTOCOL_VERSION, agent_version=__version__, node_uuid=node_uuid, hostname=name)
    async with access.channel([("grpc.enable_http_proxy", 0)]) as channel:
        for attempt in range(_ATTEMPTS):
            try:
                await _say(channel, access, AgentMessage(hello=hello))
                return
            except grpc.aio.AioRpcError as error:
                # A refusal that comes while the hello is on its way is lost in gRPC, which then says only this.
                if error.code() == grpc.StatusCode.INTERNAL and attempt + 1 < _ATTEMPTS:
                    continue
                raise GpuAgentError(_refusal(access, error)) from error


async def _say(channel: "Channel", access: "Access", hello: "AgentMessage") -> None:
    from gpuagent_proto.v1.telemetry_service_pb2_grpc import TelemetryServiceStub

    call = TelemetryServiceStub(channel).Connect(metadata=access.metadata(), timeout=_ANSWER_SECONDS)
    await call.write(hello)
    await call.read()
    call.cancel()


def _refusal(access: "Access", error: "AioRpcError") -> str:
    if error.code().name == "UNAUTHENTICATED":
        return (
            f"the collector at {access.address} does not accept this token: it has expired, was revoked, or is another "
            "collector's"
        )
    return access.explain(error) or "the collector ended the connection"
