"""Who may do what over gRPC, with a collector in this process and tokens in a real file."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import grpc
import pytest

from gpuagent.sampling.rows import encode_records
from gpuagent_collector.ingest.messages import Message, Outcome
from gpuagent_collector.server import admission, agents
from gpuagent_collector.server.throttle import Share
from gpuagent_collector.trust.scopes import Scope
from gpuagent_collector.trust.tokens import TokenFile
from gpuagent_common.connection import bearer
from gpuagent_common.errors import MisuseError
from gpuagent_proto.v1.query_service_pb2 import QueryRequest
from gpuagent_proto.v1.query_service_pb2_grpc import QueryServiceStub
from gpuagent_proto.v1.run_service_pb2 import CancelRequest
from gpuagent_proto.v1.run_service_pb2_grpc import RunServiceStub
from tests.integration.server.agents import TOKEN, Agent, ending, until
from tests.integration.trust.guarded import guarded

Row = dict[str, float | int | str | None]
OK, DENIED, UNKNOWN = grpc.StatusCode.OK, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED


async def _query(channel: grpc.aio.Channel, token: str, sql: str = "SELECT 1") -> grpc.StatusCode:
    call = QueryServiceStub(channel).Query(QueryRequest(sql=sql), metadata=bearer(token))
    return (await _outcome(call))[0]


async def _outcome(call: Any) -> tuple[grpc.StatusCode, str]:
    try:
        async for _ in call:
            pass
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return OK, ""


async def _cancel(channel: grpc.aio.Channel, token: str) -> grpc.StatusCode:
    try:
        await RunServiceStub(channel).Cancel(CancelRequest(run_id="r"), metadata=bearer(token))
    except grpc.aio.AioRpcError as error:
        return error.code()
    return OK


async def _refusal(agent: Agent) -> tuple[grpc.StatusCode, str]:
    call = agent.open()
    await call.write(agent.hello())
    return await ending(call)


async def test_each_scope_may_do_its_own_and_nothing_else(tmp_path: Path) -> None:
    async with guarded(tmp_path) as site:
        channel = site.served.channel
        agent, viewer, operator = (site.tokens.create(scope, scope.value) for scope in Scope)
        assert [await _query(channel, token) for token in (agent, viewer, operator)] == [DENIED, OK, OK]
        cancelled = [await _cancel(channel, token) for token in (agent, viewer, operator)]
        assert cancelled == [DENIED, DENIED, grpc.StatusCode.NOT_FOUND]
        assert (await _refusal(site.agent(viewer)))[0] is DENIED
        await site.agent(agent).connect()


async def test_a_refusal_names_the_scope_that_is_wanted_and_never_the_token(tmp_path: Path) -> None:
    async with guarded(tmp_path) as site:
        secret = site.tokens.create(Scope.AGENT, "gpu-7")
        call = QueryServiceStub(site.served.channel).Query(QueryRequest(sql="SELECT 1"), metadata=bearer(secret))
        _, words = await _outcome(call)
        assert "the token gpu-7 is an agent's" in words
        assert "collector tokens create viewer" in words
        assert secret not in words


async def test_revoking_a_token_ends_an_idle_stream(tmp_path: Path) -> None:
    async with guarded(tmp_path, revoked_seconds=0.01) as site:
        agent = site.bound("idle", "node-1")
        await agent.connect()
        TokenFile(site.tokens.path).revoke("idle")
        assert (await ending(agent.call))[0] is UNKNOWN


async def test_with_a_revoked_token_nothing_more_is_taken_or_given(tmp_path: Path) -> None:
    async with guarded(tmp_path) as site:
        agent = site.bound("sender", "node-1")
        await agent.connect()
        viewer = site.tokens.create(Scope.VIEWER, "board")
        sql = "SELECT repeat('x', 10000) FROM range(30000)"
        call = QueryServiceStub(site.served.channel).Query(QueryRequest(sql=sql), metadata=bearer(viewer))
        read = [await call.read()]
        for name in ("sender", "board"):
            TokenFile(site.tokens.path).revoke(name)
        await agent.send(1)
        assert (await ending(agent.call))[0] is UNKNOWN
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            while read[-1] is not grpc.aio.EOF:
                read.append(await call.read())
        assert ended.value.code() is UNKNOWN
        assert await _query(site.served.channel, viewer) is UNKNOWN
        assert site.served.rows("SELECT count(*) FROM core_samples") == [(0,)]


async def test_an_agent_cannot_be_another_node(tmp_path: Path) -> None:
    async with guarded(tmp_path) as site:
        victim = site.bound("victim", "node-1")
        await victim.connect()
        thief = site.bound("thief", "node-1")
        assert await _refusal(thief) == (
            DENIED,
            "the token thief does not fit: token victim is bound to this node; revoke it, or make both with "
            "the same --node",
        )
        elsewhere = replace_node(victim, "node-9")
        assert "bound to another node" in (await _refusal(elsewhere))[1]


def replace_node(agent: Agent, node_uuid: str) -> Agent:
    return Agent(channel=agent.channel, token=agent.token, node_uuid=node_uuid)


async def test_an_agent_cannot_take_over_another_node_s_session(tmp_path: Path) -> None:
    async with guarded(tmp_path) as site:
        victim = site.bound("victim", "node-1")
        await victim.connect()
        thief = site.bound("thief", "node-2")
        thief.session_uuid = victim.session_uuid
        assert "another node's" in (await _refusal(thief))[1]
        row: Row = {"session_uuid": victim.session_uuid, "node_uuid": "node-1", "started_at": 1}
        await victim.send(1, encode_records({"sessions": [row]}))
        await victim.acknowledged(1)
        victim.call.cancel()
        registry = site.served.collector._registry
        await until(lambda: not registry.streams())
        assert "another node's" in (await _refusal(thief))[1]


async def test_a_token_for_a_named_node_is_for_no_other(tmp_path: Path) -> None:
    async with guarded(tmp_path) as site:
        by_name = site.agent(site.tokens.create(Scope.AGENT, "a", node="gpu-7"), node_uuid="node-1")
        hello = by_name.hello()
        hello.hello.hostname = "gpu-8.example.org"
        call = by_name.open()
        await call.write(hello)
        assert "made for node gpu-7, and this is gpu-8.example.org" in (await ending(call))[1]
        hello.hello.hostname = "GPU-7.example.org"
        call = by_name.open()
        await call.write(hello)
        assert (await by_name.read()).HasField("welcome")
        by_uuid = site.agent(site.tokens.create(Scope.AGENT, "b", node="node-2"), node_uuid="node-2")
        await by_uuid.connect()


async def test_a_token_for_any_node_serves_all_of_them(tmp_path: Path) -> None:
    async with guarded(tmp_path) as site:
        secret = site.tokens.create(Scope.AGENT, "daemonset", any_node=True)
        for node_uuid in ("node-1", "node-2"):
            agent = site.agent(secret, node_uuid=node_uuid)
            await agent.connect()
            await agent.send(1)
            assert not any(message.HasField("rejection") for message in await agent.acknowledged(1))


async def test_an_agent_cannot_write_of_another_node_s_run(tmp_path: Path) -> None:
    async with guarded(tmp_path) as site:
        owner, thief = site.bound("owner", "node-1"), site.bound("thief", "node-2")
        for agent in (owner, thief):
            await agent.connect()
        request: Row = {"run_id": "r-1", "workload": "mnist", "time": 1}
        await owner.send(1, encode_records({"run_requests": [request]}))
        await owner.acknowledged(1)
        ended: dict[str, list[Row]] = {"run_states": [{"run_id": "r-1", "status": "failed", "time": 2}]}
        await thief.send(1, encode_records(ended))
        refused = [message.rejection.reason for message in await thief.acknowledged(1)]
        assert "run r-1 is another node's" in refused
        await owner.send(2, encode_records({"run_states": [{"run_id": "r-1", "status": "succeeded", "time": 2}]}))
        await owner.acknowledged(2)
        assert site.served.rows("SELECT status FROM run_states") == [("succeeded",)]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"sessions": [{"session_uuid": "somebody", "started_at": 1}]}, "is not that of the stream"),
        ({"sessions": [{"hostname": "x" * 1001, "started_at": 1}]}, "longer than 1000"),
        ({"sessions": [{"labels": json.dumps({str(n): "" for n in range(65)}), "started_at": 1}]}, "more than 64"),
    ],
)
async def test_names_and_labels_beyond_the_limits_are_refused(tmp_path: Path, rows: Any, words: str) -> None:
    async with guarded(tmp_path) as site:
        agent = site.bound("a", "node-1")
        await agent.connect()
        await agent.send(1, encode_records(rows))
        assert words in (await agent.acknowledged(1))[0].rejection.reason


def test_the_audit_record_tells_who_asked_for_what(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> str:
        async with guarded(tmp_path) as site:
            secret = site.tokens.create(Scope.VIEWER, "board")
            await _query(site.served.channel, secret, "SELECT 42")
            await _cancel(site.served.channel, TOKEN)
            await _query(site.served.channel, "guess")
            return secret

    with caplog.at_level(logging.INFO, "gpuagent.audit"):
        secret = asyncio.run(scenario())
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "gpuagent.audit"]
    told = [(line["action"], line["who"], line.get("sql") or line.get("run"), line["outcome"]) for line in lines]
    assert told == [
        ("query", "board", "SELECT 42", "ok"),
        ("cancel", "owner", "r", "not_found"),
        ("refused", None, None, "unauthenticated"),
    ]
    assert all(line["peer"] and line["time"] for line in lines)
    assert secret not in caplog.text
    assert TOKEN not in caplog.text


async def test_a_node_has_only_so_many_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_STREAMS_A_NODE", 2)
    async with guarded(tmp_path) as site:
        secret = site.tokens.create(Scope.AGENT, "a")
        agents = [site.agent(secret) for _ in range(3)]
        for agent in agents[:2]:
            await agent.connect()
        assert (await _refusal(agents[2]))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_what_one_node_sends_on_many_streams_leaves_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "Share", lambda: Share(max_messages=3))

    async def scenario() -> None:
        async with guarded(tmp_path) as site:
            secret = site.tokens.create(Scope.AGENT, "a")
            greedy = [site.agent(secret, node_uuid="node-1") for _ in range(5)]
            for agent in greedy:
                await agent.connect()
            streams = site.served.collector._registry.streams()
            submit, most = site.served.collector.ingest.submit, 0

            async def counting(message: Message) -> "asyncio.Future[Outcome]":
                nonlocal most
                future = await submit(message)
                most = max(most, sum(len(stream.in_flight) for stream in streams) + 1)
                return future

            monkeypatch.setattr(site.served.collector.ingest, "submit", counting)
            for number in range(1, 20):
                await asyncio.gather(*(agent.send(number) for agent in greedy))
            for agent in greedy:
                await agent.acknowledged(19)
            assert 1 <= most <= 3
            (share,) = {stream.share for stream in streams}
            assert (share.messages, share.size_bytes) == (0, 0)

    asyncio.run(scenario())


async def test_a_node_that_comes_back_has_no_new_share(tmp_path: Path) -> None:
    async with guarded(tmp_path) as site:
        registry = site.served.collector._registry
        before = registry.share(1)
        await before.take(100)  # as a message does whose stream has ended since
        assert registry.share(1) is before
        assert registry.share(2) is not before


async def test_tokens_that_cannot_be_read_open_nothing(tmp_path: Path) -> None:
    async with guarded(tmp_path) as site:
        secret = site.tokens.create(Scope.VIEWER, "board")
        site.tokens.path.chmod(0o644)
        call = QueryServiceStub(site.served.channel).Query(QueryRequest(sql="SELECT 1"), metadata=bearer(secret))
        code, words = await _outcome(call)
        assert code is grpc.StatusCode.UNAVAILABLE
        assert str(tmp_path) not in words, "a stranger was told where the tokens lie"
        assert await _query(site.served.channel, TOKEN) is OK
    with pytest.raises(MisuseError):
        TokenFile(tmp_path / "absent.json").revoke("board")
