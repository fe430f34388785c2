"""Who may do what over gRPC, with a collector in this process and tokens in a real file."""

import asyncio
import contextlib
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from gpuagent.sampling.rows import Row, encode_records
from gpuagent_collector.ingest.messages import Message, Outcome
from gpuagent_collector.server import agents as agents_of
from gpuagent_collector.server.auth import Validity
from gpuagent_collector.server.throttle import Share
from gpuagent_collector.trust.tokens import Caller, Scope, TokenFile
from gpuagent_common.connection import bearer
from gpuagent_common.errors import MisuseError
from gpuagent_common.keys import invited_run, make_invitation
from gpuagent_proto.v1 import telemetry_pb2 as wire
from gpuagent_proto.v1.query_service_pb2 import QueryRequest
from gpuagent_proto.v1.query_service_pb2_grpc import QueryServiceStub
from gpuagent_proto.v1.run_service_pb2 import CancelRequest
from gpuagent_proto.v1.run_service_pb2_grpc import RunServiceStub
from tests.integration.server.agents import TOKEN, Agent, ending, until
from tests.integration.trust.conftest import Guarded, guarded

pytestmark = pytest.mark.slow

OK, DENIED, UNKNOWN = grpc.StatusCode.OK, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED


async def _outcome(channel: grpc.aio.Channel, token: str, sql: str = "SELECT 1") -> tuple[grpc.StatusCode, str]:
    try:
        async for _ in QueryServiceStub(channel).Query(QueryRequest(sql=sql), metadata=bearer(token)):
            pass
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return OK, ""


async def _query(channel: grpc.aio.Channel, token: str, sql: str = "SELECT 1") -> grpc.StatusCode:
    return (await _outcome(channel, token, sql))[0]


async def _cancel(channel: grpc.aio.Channel, token: str) -> grpc.StatusCode:
    try:
        await RunServiceStub(channel).Cancel(CancelRequest(run_id="r"), metadata=bearer(token))
    except grpc.aio.AioRpcError as error:
        return error.code()
    return OK


async def _refusal(agent: Agent) -> tuple[grpc.StatusCode, str]:
    call = agent.open()
    with contextlib.suppress(grpc.aio.AioRpcError):  # the collector may have refused it before
        await call.write(agent.hello())
    return await ending(call)


async def test_each_scope_may_do_its_own_and_nothing_else(site: Guarded) -> None:
    channel = site.served.channel
    agent, viewer, operator = (site.tokens.create(scope, scope.value) for scope in Scope)
    assert [await _query(channel, token) for token in (agent, viewer, operator)] == [DENIED, OK, OK]
    cancelled = [await _cancel(channel, token) for token in (agent, viewer, operator)]
    assert cancelled == [DENIED, DENIED, grpc.StatusCode.NOT_FOUND]
    assert (await _refusal(site.agent(viewer)))[0] is DENIED
    await site.agent(agent).connect()


async def test_a_refusal_names_the_scope_that_is_wanted_and_never_the_token(site: Guarded) -> None:
    secret = site.tokens.create(Scope.AGENT, "gpu-7")
    _, words = await _outcome(site.served.channel, secret)
    assert "the token gpu-7 is an agent's" in words
    assert "collector tokens create" in words
    assert secret not in words


async def test_revoking_a_token_ends_an_idle_stream(tmp_path: Path) -> None:
    async with guarded(tmp_path, revoked_seconds=0.01) as site:
        agent = site.bound("idle", "node-1")
        await agent.connect()
        TokenFile(site.tokens.path).revoke("idle")
        assert (await ending(agent.call))[0] is UNKNOWN


async def test_with_a_revoked_token_nothing_more_is_taken_or_given(site: Guarded) -> None:
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


async def test_an_agent_cannot_be_another_node(site: Guarded) -> None:
    victim = site.bound("victim", "node-1")
    await victim.connect()
    thief = site.bound("thief", "node-1")
    assert await _refusal(thief) == (
        DENIED,
        "the token thief does not fit: token victim is bound to this node; revoke it, or make both with "
        "the same --node",
    )
    elsewhere = site.agent(victim.token, node_uuid="node-9")
    assert "to another node" in (await _refusal(elsewhere))[1]


async def test_an_agent_cannot_take_over_another_node_s_session(site: Guarded) -> None:
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


async def test_a_token_for_a_named_node_is_for_no_other(site: Guarded) -> None:
    by_name = site.agent(site.tokens.create(Scope.AGENT, "a", node="gpu-7"), node_uuid="node-1")
    hello = by_name.hello()
    hello.hello.hostname = "gpu-8.example.org"
    call = by_name.open()
    await call.write(hello)
    assert "node gpu-7" in (await ending(call))[1]
    hello.hello.hostname = "GPU-7.example.org"
    call = by_name.open()
    await call.write(hello)
    assert (await by_name.read()).HasField("welcome")
    by_uuid = site.agent(site.tokens.create(Scope.AGENT, "b", node="node-2"), node_uuid="node-2")
    await by_uuid.connect()


async def test_a_token_for_any_node_serves_all_of_them(site: Guarded) -> None:
    secret = site.tokens.create(Scope.AGENT, "daemonset", any_node=True)
    for node_uuid in ("node-1", "node-2"):
        agent = site.agent(secret, node_uuid=node_uuid)
        await agent.connect()
        await agent.send(1)
        assert not any(message.HasField("rejection") for message in await agent.acknowledged(1))


async def test_an_agent_cannot_write_of_another_node_s_run(site: Guarded) -> None:
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
        ({"sessions": [{"hostname": "x" * 1001, "started_at": 1}]}, "longer than 1,000"),
        ({"sessions": [{"labels": json.dumps({str(n): "" for n in range(65)}), "started_at": 1}]}, "at most 64"),
    ],
)
async def test_names_and_labels_beyond_the_limits_are_refused(site: Guarded, rows: Any, words: str) -> None:
    agent = site.bound("a", "node-1")
    await agent.connect()
    await agent.send(1, encode_records(rows))
    assert words in (await agent.acknowledged(1))[0].rejection.reason


async def test_the_audit_record_tells_who_asked_for_what(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "gpuagent.audit"):
        async with guarded(tmp_path) as site:
            secret = site.tokens.create(Scope.VIEWER, "board")
            await _query(site.served.channel, secret, "SELECT 42")
            await _cancel(site.served.channel, TOKEN)
            await _query(site.served.channel, "guess")
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


@pytest.mark.parametrize("bound", ["MAX_STREAMS_A_NODE", "MAX_SESSIONS_A_NODE"])
async def test_a_node_has_only_so_many_streams_and_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(agents_of, bound, 2)
    async with guarded(tmp_path) as site:
        secret = site.tokens.create(Scope.AGENT, "a")
        agents = [site.agent(secret) for _ in range(3)]
        for agent in agents[:2]:
            await agent.connect()
        assert (await _refusal(agents[2]))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_many_streams_of_a_node_leave_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents_of, "Share", lambda: Share(max_messages=3))
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


async def test_a_node_that_comes_back_has_no_new_share(site: Guarded) -> None:
    registry = site.served.collector._registry
    before = registry.share(1)
    await before.take(100)  # as a message does whose stream has ended since
    assert registry.share(1) is before
    assert registry.share(2) is not before


async def test_tokens_that_cannot_be_read_open_nothing(tmp_path: Path) -> None:
    async with guarded(tmp_path) as site:
        secret = site.tokens.create(Scope.VIEWER, "board")
        site.tokens.path.chmod(0o644)
        code, words = await _outcome(site.served.channel, secret)
        assert code is grpc.StatusCode.UNAVAILABLE
        assert str(tmp_path) not in words, "a stranger was told where the tokens lie"
        assert await _query(site.served.channel, TOKEN) is OK
    with pytest.raises(MisuseError):
        TokenFile(tmp_path / "absent.json").revoke("board")


INVITATION = make_invitation(("secret",))
RUN = invited_run("mnist", INVITATION)
FULL = f"run {RUN} has its 2 nodes already"
REFUSED, NOT_INVITED = f"run {RUN} is another node's", f"run {RUN} is of several nodes, and this one was not invited"


def part(invitation: str | None, *, run_id: str = RUN, nodes: int = 2) -> bytes:
    row: Row = {"run_id": run_id, "workload": "mnist", "time": 1, "nodes": nodes, "invitation": invitation}
    return encode_records({"run_requests": [row]})


def state(run_id: str = RUN) -> bytes:
    return encode_records({"run_states": [{"run_id": run_id, "status": "running", "time": 2}]})


async def send(agent: Agent, number: int, records: bytes) -> list[str]:
    """Send a message and return why it was refused, if it was."""
    await agent.send(number, records)
    answers = await agent.acknowledged(number)
    return [answer.rejection.reason for answer in answers if answer.HasField("rejection")]


async def nodes(site: Guarded, count: int) -> list[Agent]:
    agents = [site.bound(f"agent-{number}", f"node-{number}") for number in range(count)]
    for agent in agents:
        await agent.connect()
    return agents


async def test_nodes_that_are_invited_make_one_run_until_it_has_all_of_them(site: Guarded) -> None:
    first, second, third = await nodes(site, 3)
    assert await send(first, 1, part(INVITATION)) == []
    assert await send(second, 1, state()) == [REFUSED]
    assert await send(second, 2, part(INVITATION)) == []
    assert await send(second, 3, state()) == []
    assert await send(first, 2, state()) == []
    assert await send(third, 1, part(INVITATION)) == [FULL]
    assert site.served.rows("SELECT count(DISTINCT node_id), count(*) FROM run_states") == [(2, 2)]


async def test_who_knows_the_run_s_name_alone_is_not_let_in(site: Guarded) -> None:
    owner, thief = await nodes(site, 2)
    assert await send(thief, 1, part("guess")) == [NOT_INVITED]
    assert await send(owner, 1, part(INVITATION)) == []
    for number, invitation in enumerate((None, "guess", RUN), start=2):
        assert await send(thief, number, part(invitation)) == [REFUSED]
    assert await send(thief, 5, state()) == [REFUSED]
    # A run of one node is joined by nobody.
    assert await send(owner, 2, part(None, run_id="r-1", nodes=1)) == []
    assert await send(thief, 6, part(INVITATION, run_id="r-1")) == ["run r-1 is another node's"]


async def test_the_invitation_is_in_no_table(site: Guarded) -> None:
    (agent,) = await nodes(site, 1)
    assert await send(agent, 1, part(INVITATION)) == []
    (row,) = site.served.rows("SELECT run_requests::VARCHAR FROM run_requests")
    assert RUN in row[0]
    assert INVITATION not in row[0]


async def test_a_collector_that_starts_anew_knows_who_takes_part(tmp_path: Path) -> None:
    async with guarded(tmp_path) as site:
        first, second, _ = before = await nodes(site, 3)
        for agent in (first, second):
            assert await send(agent, 1, part(INVITATION)) == []
        tokens = [agent.token for agent in before]
    async with guarded(tmp_path) as site:
        again = [
            site.agent(token, session_uuid=agent.session_uuid, node_uuid=agent.node_uuid)
            for token, agent in zip(tokens, before, strict=True)
        ]
        for agent in again:
            await agent.connect()
        first, second, third = again
        assert await send(first, 2, state()) == []
        assert await send(second, 2, state()) == []
        assert await send(third, 1, part(INVITATION)) == [FULL]


def _holders(tokens: TokenFile, *names: str) -> list[Caller]:
    found = [tokens.find(tokens.create(Scope.AGENT, name)) for name in names]
    return [Caller(name=token.name, scope=token.scope, token=token, file=tokens) for token in found if token]


async def test_the_file_is_looked_at_once_for_all_that_comes_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    holders, validity, looks = _holders(tokens, "a", "b", "c"), Validity(), 0
    look = TokenFile.snapshot

    def counting(self: TokenFile) -> object:
        nonlocal looks
        looks += 1
        return look(self)

    monkeypatch.setattr(TokenFile, "snapshot", counting)
    assert all(validity.is_valid(holder) for holder in holders)
    assert looks == 1
    TokenFile(tokens.path).revoke("b")
    await asyncio.sleep(0)
    assert [validity.is_valid(holder) for holder in holders] == [True, False, True]
    assert looks == 2


async def test_the_owner_is_always_valid_and_nobody_else_is_when_the_file_cannot_be_read(tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    (holder,), validity = _holders(tokens, "a"), Validity()
    tokens.path.write_text("nonsense")
    assert not validity.is_valid(holder)
    assert validity.is_valid(replace(holder, token=None, file=None))


async def test_a_hello_that_is_refused_binds_no_token(site: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = site.bound("victim", "node-1")
    await victim.connect()
    held = site.bound("held", "node-2")
    held.session_uuid = victim.session_uuid
    assert (await _refusal(held))[0] is DENIED
    monkeypatch.setattr(agents_of, "MAX_STREAMS", 1)
    one_too_many = site.bound("late", "node-3")
    assert (await _refusal(one_too_many))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
    bound = {token.name: token.bound_to for token in site.tokens.all()}
    assert bound == {"victim": "node-1", "held": None, "late": None}
    # Each token is still good for another node.
    monkeypatch.undo()
    for name, node_uuid in (("held", "node-4"), ("late", "node-5")):
        other = site.agent({"held": held, "late": one_too_many}[name].token, node_uuid=node_uuid)
        await other.connect()


async def test_a_call_with_two_tokens_is_refused_whichever_they_are(site: Guarded) -> None:
    viewer = site.tokens.create(Scope.VIEWER, "board")
    for pair in ((viewer, "guess"), ("guess", viewer), (viewer, viewer)):
        metadata = tuple(entry for token in pair for entry in bearer(token))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await QueryServiceStub(site.served.channel).Query(QueryRequest(sql="SELECT 1"), metadata=metadata).read()
        assert refused.value.code() is UNKNOWN


async def test_the_services_are_listed_for_operators_alone(site: Guarded) -> None:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(site.served.channel)  # type: ignore[arg-type] # as below
    for scope in Scope:
        call = stub.ServerReflectionInfo(metadata=bearer(site.tokens.create(scope, scope.value)))
        if scope is Scope.OPERATOR:
            await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
            assert (await call.read()).list_services_response.service
            call.cancel()
            continue
        assert (await ending(call))[0] is DENIED


@pytest.mark.parametrize("content", [b"\x0a\xff", b"\x0a\x80\x80\x80\x01" + b"\x22\0" * 2**20, b"\x22\0" * 2**21])
async def test_a_message_of_many_tiny_parts_is_refused_before_it_is_parsed(site: Guarded, content: bytes) -> None:
    connect: Any = site.served.channel.stream_stream(
        "/gpuagent_proto.v1.TelemetryService/Connect", response_deserializer=wire.CollectorMessage.FromString
    )
    agent = site.bound("a", "node-1")
    for messages in ((content,), (agent.hello().SerializeToString(), content)):
        call = connect(metadata=bearer(agent.token))
        for message in messages:
            await call.write(message)
        assert (await ending(call))[0] is grpc.StatusCode.INVALID_ARGUMENT
    await agent.connect()
