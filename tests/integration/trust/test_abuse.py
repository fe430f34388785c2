"""What who has no token, or an agent's, can do to the collector and to those who read its log."""

import asyncio
import gc
import json
import logging
import socket
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from gpuagent_collector.cli.serve import is_worth_logging
from gpuagent_collector.server import app, telemetry_service
from gpuagent_collector.trust import audit
from gpuagent_collector.trust.audit import MAX_IN_WINDOW
from gpuagent_collector.trust.tokens import Scope, TokenFile, Tokens
from gpuagent_collector.web.server import WebServer
from gpuagent_common.address import Address
from gpuagent_common.connection import bearer
from gpuagent_common.unexpected import LineFormatter
from gpuagent_proto.v1 import telemetry_pb2 as wire
from gpuagent_proto.v1.query_service_pb2 import QueryRequest
from gpuagent_proto.v1.query_service_pb2_grpc import QueryServiceStub
from tests.integration.server.agents import TOKEN, ending
from tests.integration.trust.conftest import Guarded, guarded
from tests.support.http import PATIENCE_SECONDS, fetch

LEAVERS = 24
LONG = "SELECT a.range FROM range(10000) AS a, range(10000) AS b"


def notes(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [json.loads(record.getMessage()) for record in caplog.records if record.name == "gpuagent.audit"]


async def status(call: Awaitable[object]) -> grpc.StatusCode:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_without_a_token_health_is_not_watched(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "gpuagent.audit"):
        async with guarded(tmp_path) as site:
            health: Any = HealthStub(site.served.channel)
            assert (await health.Check(HealthCheckRequest())).status == HealthCheckResponse.SERVING
            unknown = grpc.StatusCode.UNAUTHENTICATED
            assert await status(health.Watch(HealthCheckRequest()).read()) is unknown
            allowed = health.Watch(HealthCheckRequest(), metadata=bearer(site.tokens.create(Scope.AGENT, "a")))
            assert (await allowed.read()).status == HealthCheckResponse.SERVING
            allowed.cancel()
            stray: Any = site.served.channel.unary_unary(f"/{'x' * 7000}/y")
            assert await status(stray(b"")) is unknown
    assert [len(line["method"]) for line in notes(caplog) if line["action"] == "refused"] == [
        len("/grpc.health.v1.Health/Watch"),
        200,
    ]


async def test_who_holds_many_connections_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "most_connections", lambda: 3)

    def hold(host: str, port: int) -> list[socket.socket]:
        held = [socket.create_connection((host, port), timeout=PATIENCE_SECONDS) for _ in range(20)]
        assert held[-1].recv(1) == b""
        return held

    async with guarded(tmp_path) as site:
        await site.agent(TOKEN).connect()
        address = site.served.address
        held = await asyncio.to_thread(hold, address.host, address.port)
        await site.agent(TOKEN).connect()
        for connection in held:
            connection.close()


async def test_an_answer_with_too_many_runs_ends_the_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry_service, "MAX_RUNS_A_LAUNCH", 2)
    async with guarded(tmp_path) as site:
        agent = site.bound("a", "node-1")
        await agent.connect()
        for run_ids in (["r1", "r2"], ["r1", "r2", "r3"]):
            reply = wire.LaunchReply(launch_id="nobody-asked", run_ids=run_ids)
            await agent.call.write(wire.AgentMessage(launch_reply=reply))
        assert [(await agent.read()).cancel.run_id for _ in range(2)] == ["r1", "r2"]
        code, words = await ending(agent.call)
        assert (code, words) == (grpc.StatusCode.INVALID_ARGUMENT, "a launch of more than 2 runs")


async def test_who_goes_away_from_a_long_answer_is_noted_and_leaves_the_collector_running(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "gpuagent.audit"):
        async with guarded(tmp_path) as site:
            queries: Any = QueryServiceStub(site.served.channel)
            viewer = bearer(site.tokens.create(Scope.VIEWER, "v"))
            for _ in range(LEAVERS):
                call = queries.Query(QueryRequest(sql=LONG), metadata=viewer)
                await call.read()
                call.cancel()
            while len(notes(caplog)) < LEAVERS:
                gc.collect()  # closes what nobody reads any more
                await asyncio.sleep(0)
    assert {(line["action"], line["who"], line["peer"].rpartition(":")[0]) for line in notes(caplog)} == {
        ("query", "v", "ipv4:127.0.0.1")
    }


@pytest.mark.parametrize("about", [{"node_uuid": "\x1b[2Jnode"}, {"session_uuid": "s\nWARNING: forged"}])
async def test_a_hello_that_would_do_something_to_a_log_is_refused(site: Guarded, about: dict[str, str]) -> None:
    agent = site.agent(site.tokens.create(Scope.AGENT, "a"), **about)
    call = agent.open()
    await call.write(agent.hello())
    code, words = await ending(call)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "unprintable" in words


def test_a_line_of_the_log_is_one_line_whatever_agents_put_into_it() -> None:
    record = logging.LogRecord("name", logging.WARNING, "path", 1, "unknown: %s", ("\x1b[2J\nERROR: forged",), None)
    assert LineFormatter("%(levelname)s: %(message)s").format(record) == "WARNING: unknown: \\x1b[2J\\nERROR: forged"


@pytest.mark.parametrize(("error", "is_told"), [("ExecuteBatchError", False), ("ValueError", True)])
def test_the_log_does_not_tell_of_a_caller_who_went_away_while_answered(error: str, is_told: bool) -> None:
    message = f"{error} raised in core by servicer method [%s]"
    assert is_worth_logging(logging.LogRecord("grpc", logging.ERROR, "path", 1, message, ("/Query",), None)) == is_told


async def test_an_agent_refused_over_and_over_fills_no_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "gpuagent.audit"):
        async with guarded(tmp_path) as site:
            await site.bound("victim", "node-1").connect()
            thief = site.bound("thief", "node-1")
            for _ in range(MAX_IN_WINDOW + 3):
                call = thief.open()
                await call.write(thief.hello())
                assert (await ending(call))[0] is grpc.StatusCode.PERMISSION_DENIED
    refused = [line for line in notes(caplog) if (line["action"], line["who"]) == ("refused", "thief")]
    assert [line.get("more") for line in refused] == [None] * MAX_IN_WINDOW + [3]


def test_an_agent_that_asks_for_many_pages_fills_no_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    shown = {"Authorization": f"Bearer {tokens.create(Scope.AGENT, 'curious')}"}
    server = WebServer(Address(host="127.0.0.1", port=0), (), tokens=Tokens(TOKEN, tokens))
    server.start()
    try:
        with caplog.at_level(logging.INFO, "gpuagent.audit"):
            told = {fetch(server.address, "/", shown).status for _ in range(MAX_IN_WINDOW + 3)}
            audit.sum_up(at_end=True)
    finally:
        server.stop()
    assert told == {403}
    assert [line.get("more") for line in notes(caplog) if line["who"] == "curious"] == [None] * MAX_IN_WINDOW + [3]
