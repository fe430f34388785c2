import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import duckdb
import grpc
import pytest

from gpuagent.sampling.rows import encode_records
from gpuagent_collector import __version__
from gpuagent_collector.ingest.ingest import IngestSettings
from gpuagent_collector.server import throttle
from gpuagent_collector.server.app import Collector
from gpuagent_common.connection import bearer
from gpuagent_proto.v1 import PROTOCOL_VERSION
from gpuagent_proto.v1 import telemetry_pb2 as wire
from gpuagent_proto.v1.query_service_pb2 import QueryRequest
from gpuagent_proto.v1.query_service_pb2_grpc import QueryServiceStub
from tests.integration.server.agents import (
    SETTINGS,
    TOKEN,
    Agent,
    Served,
    connected,
    core_rows,
    ending,
    no_summary,
    serving,
    until,
)
from tests.support.stores import open_store
from tests.unit.collector_store.faults import failing

INVALID = grpc.StatusCode.INVALID_ARGUMENT
ENDED = encode_records({"run_states": [{"run_id": "r", "status": "succeeded"}]})


class HeldWriter:
    """Holds the writer up, by the run that ends in a first message; that is acknowledged once it is let go."""

    def __init__(self) -> None:
        self.held = threading.Event()
        self._go = threading.Event()

    def __call__(self, connection: duckdb.DuckDBPyConnection, run_ids: Sequence[str], computed_at: datetime) -> None:
        self.held.set()
        self._go.wait()

    async def hold(self, agent: Agent) -> None:
        await agent.connect()
        await agent.send(1, ENDED)
        await until(self.held.is_set)

    def release(self) -> None:
        self._go.set()


async def test_rows_are_in_the_store_when_their_message_is_acknowledged(served: Served) -> None:
    agent = Agent(channel=served.channel)
    welcome = await agent.connect()
    assert (welcome.protocol_version, welcome.collector_version) == (PROTOCOL_VERSION, __version__)
    assert not welcome.marks
    await agent.send(1, core_rows(4, 5))
    await agent.acknowledged(1)
    assert served.rows("SELECT session_id, core FROM core_samples ORDER BY core") == [
        (agent.session_id, 4),
        (agent.session_id, 5),
    ]


async def test_repeats_are_acknowledged_but_not_stored(served: Served, agent: Agent) -> None:
    for number in (1, 2, 5):
        await agent.send(number)
    await agent.acknowledged(5)
    welcome = await agent.connect()
    assert [(mark.session_id, mark.number) for mark in welcome.marks] == [(agent.session_id, 5)]
    await agent.send(5)
    await agent.acknowledged(5)
    assert served.rows("SELECT core FROM core_samples ORDER BY 1") == [(1,), (2,), (5,)]


async def test_a_bad_message_is_rejected_and_its_neighbours_are_stored(served: Served, agent: Agent) -> None:
    await agent.send(1)
    await agent.send(2, b"\xff\xff")
    await agent.send(3)
    rejections = [each.rejection for each in await agent.acknowledged(3) if each.HasField("rejection")]
    assert [(each.number, each.reason) for each in rejections] == [(2, "not a Records message")]
    assert served.rows("SELECT core FROM core_samples ORDER BY 1") == [(1,), (3,)]


async def test_a_group_is_acknowledged_at_once_not_message_by_message(tmp_path: Path) -> None:
    writer = HeldWriter()
    async with serving(tmp_path, summarize=writer) as served:
        agent = Agent(channel=served.channel)
        await writer.hold(agent)
        for number in range(2, 202):
            await agent.send(number)
        sent = len(ENDED) + sum(len(core_rows(number)) for number in range(2, 202))
        await until(lambda: served.collector.ingest.queued_bytes == sent)
        writer.release()
        marks: list[list[int]] = []
        while len(marks) < 2:
            # Between them a busy collector may only ask for patience.
            marks += filter(None, [agent.session_marks(await agent.read())])
        assert marks == [[1], [201]]


async def test_agents_are_slowed_while_the_queue_is_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(throttle, "MAX_LAG_SECONDS", 900.0)
    writer = HeldWriter()
    quarter = core_rows(*range(100))
    settings = replace(SETTINGS, ingest=IngestSettings(queue_limit_bytes=4 * len(quarter)))
    async with serving(tmp_path, settings, summarize=writer) as served:
        sender, bystander = Agent(channel=served.channel), Agent(channel=served.channel, node_uuid="node-2")
        assert (await bystander.connect()).flush_interval_millis == 1000
        await writer.hold(sender)
        for number in range(2, 5):
            await sender.send(number, quarter)
        slower = [(await bystander.read()).pace.flush_interval_millis for _ in range(3)]
        assert slower == [2000, 5000, 10_000]
        writer.release()
        assert (await bystander.read()).pace.flush_interval_millis == 1000


async def test_a_query_has_agents_of_idle_nodes_deliver_at_once(served: Served, agent: Agent) -> None:
    query = QueryServiceStub(served.channel).Query(QueryRequest(sql="SELECT 1"), metadata=bearer(TOKEN))
    assert [answer async for answer in query]
    assert (await agent.read()).pace == wire.Pace(flush_interval_millis=1000, idle_flush_interval_millis=1000)
    welcome = await Agent(channel=served.channel, node_uuid="node-2").connect()
    assert (welcome.flush_interval_millis, welcome.idle_flush_interval_millis) == (1000, 1000)


async def test_an_agent_that_does_not_listen_holds_up_no_other(served: Served) -> None:
    deaf, other = await connected(served), await connected(served, node_uuid="node-2")
    for number in range(1, 3000):
        await deaf.send(number, b"\xff")
    await other.send(1)
    assert not any(message.HasField("rejection") for message in await other.acknowledged(1))


async def test_a_clock_probe_is_answered_with_the_collectors_time(agent: Agent) -> None:
    await agent.call.write(wire.AgentMessage(clock_probe=wire.ClockProbe(agent_unix_nano=7)))
    reply = (await agent.read()).clock_reply
    assert reply.agent_unix_nano == 7
    assert reply.collector_unix_nano > 1_700_000_000_000_000_000


async def test_a_new_stream_ends_the_older_one_and_counts_what_that_had_sent(tmp_path: Path) -> None:
    writer = HeldWriter()
    async with serving(tmp_path, summarize=writer) as served:
        agent = Agent(channel=served.channel)
        await writer.hold(agent)
        older = agent.call
        await agent.send(2)
        await until(lambda: served.collector.ingest.queued_bytes > len(ENDED))
        welcome = asyncio.create_task(agent.connect())
        code, words = await ending(older)
        writer.release()
        assert [mark.number for mark in (await welcome).marks] == [2]
        assert (code, words) == (grpc.StatusCode.ABORTED, "a newer stream of the same session has taken over")


async def test_an_agent_that_is_done_gets_its_last_acknowledgements(agent: Agent) -> None:
    for number in range(1, 51):
        await agent.send(number)
    await agent.call.done_writing()
    await agent.acknowledged(50)
    assert await ending(agent.call) == (grpc.StatusCode.OK, "")


async def test_stopping_commits_and_acknowledges_what_was_taken(served: Served, agent: Agent) -> None:
    for number in range(1, 101):
        await agent.send(number)
    await until(lambda: served.rows("SELECT count(*) FROM core_samples") != [(0,)])
    stopping = asyncio.create_task(served.collector.stop())
    last = 0
    while (message := await _next(agent)) is not None:
        last = max([last, *agent.session_marks(message)])
    assert await ending(agent.call) == (grpc.StatusCode.UNAVAILABLE, "the collector is stopping")
    assert served.rows("SELECT max(core), count(*) FROM core_samples") == [(last, last)]
    await stopping


async def test_stopping_does_not_wait_for_a_store_that_cannot_be_written(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "runs.duckdb")) as store:
        collector = Collector(failing(store, ["before commit"] * 1000), SETTINGS, summarize=no_summary)
        address = await collector.start()
        async with grpc.aio.insecure_channel(str(address)) as channel:
            agent = Agent(channel=channel)
            await agent.connect()
            await agent.send(1)
            await until(lambda: collector.ingest.queued_bytes > 0)
            assert await collector.stop()
            assert (await ending(agent.call))[0] is grpc.StatusCode.UNAVAILABLE
        assert store.connect().execute("SELECT count(*) FROM core_samples").fetchall() == [(0,)]


async def test_who_says_nothing_is_cut_off(tmp_path: Path) -> None:
    async with serving(tmp_path, replace(SETTINGS, hello_seconds=0.01)) as served:
        ended = await ending(Agent(channel=served.channel).open())
    assert ended == (grpc.StatusCode.DEADLINE_EXCEEDED, "no hello within 0.01 s")


def _hello(agent: Agent, version: int) -> wire.AgentMessage:
    hello = agent.hello()
    hello.hello.protocol_version = version
    return hello


def _batch(session_id: int, number: int) -> wire.AgentMessage:
    return wire.AgentMessage(batch=wire.Batch(session_id=session_id, number=number))


async def _next(agent: Agent) -> wire.CollectorMessage | None:
    try:
        return await agent.read()
    except (grpc.aio.AioRpcError, AssertionError):
        return None


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        (
            lambda agent: [_hello(agent, version=PROTOCOL_VERSION + 7)],
            grpc.StatusCode.FAILED_PRECONDITION,
            f"the agent (0.0.1) uses protocol version {PROTOCOL_VERSION + 7}, the collector ({__version__}) version "
            f"{PROTOCOL_VERSION}; upgrade gpuagent on the collector's side",
        ),
        (
            lambda _: [wire.AgentMessage(clock_probe=wire.ClockProbe())],
            INVALID,
            "the first message of a stream must be a hello",
        ),
        (lambda agent: [agent.hello(), agent.hello()], INVALID, "a second hello on one stream"),
        (lambda agent: [agent.hello(), _batch(5, 1)], INVALID, "a batch of session 5, which the hello did not name"),
        (
            lambda agent: [agent.hello(), _batch(agent.session_id, 0)],
            grpc.StatusCode.INVALID_ARGUMENT,
            "a batch with number 0; they begin with 1",
        ),
    ],
)
async def test_an_agent_that_does_not_keep_to_the_protocol_is_told_why_and_cut_off(
    served: Served, said: Callable[[Agent], Sequence[wire.AgentMessage]], code: grpc.StatusCode, words: str
) -> None:
    agent = Agent(channel=served.channel)
    call = agent.open()
    for message in said(agent):
        await call.write(message)
    assert await ending(call) == (code, words)


RECORDED = sorted((Path(__file__).parents[2] / "fixtures/wire").glob("agent-*.json"))

_CONNECT = "/gpuagent_proto.v1.TelemetryService/Connect"

Bytes = grpc.aio.StreamStreamCall[bytes, bytes]


@asynccontextmanager
async def speaking(folder: Path) -> AsyncIterator[tuple[Served, Bytes]]:
    """Connect to a collector, with messages that nobody looks at on the way."""
    async with serving(folder) as served:
        connect: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = served.channel.stream_stream(_CONNECT)
        yield served, connect(metadata=bearer(TOKEN))


async def _acknowledged(call: Bytes, number: int) -> None:
    while True:
        content = await call.read()
        assert isinstance(content, bytes)
        message = wire.CollectorMessage.FromString(content)
        assert not message.HasField("rejection"), message.rejection.reason
        if [mark.number for mark in message.ack.marks] == [number]:
            return


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.stem)
async def test_what_an_older_agent_sends_is_stored_as_it_meant_it(tmp_path: Path, recorded: Path) -> None:
    said = {name: bytes.fromhex(message) for name, message in json.loads(recorded.read_text()).items()}
    async with speaking(tmp_path) as (served, call):
        for message in said.values():
            await call.write(message)
        await _acknowledged(call, 3)
        runs = served.rows("SELECT workload, status, platform, epoch(ended_at - started_at) FROM runs")
        assert runs == [("mnist", "succeeded", "satori", 2.0)]
        assert served.rows("SELECT hostname, labels->>'rack' FROM nodes") == [("gpu-1", "7")]
        samples = served.rows("SELECT cpu_percent, memory_used_bytes FROM host_samples ORDER BY time")
        assert samples == [(None, 0), (12.5, 1), (25.0, 2)]
        assert served.rows("SELECT utilization_percent, power_kind FROM gpu_samples") == [(98.0, "instant")]
        assert served.rows("SELECT sum(wall_seconds), max(value) FROM steps, results") == [(1.0, 128.0)]


async def test_machines_with_one_identity_are_told_of_each_other(served: Served) -> None:
    one = Agent(channel=served.channel, hostname="one", boot_id="boot-1")
    # A pod of the same machine is no other machine, and neither is an older agent, which names neither boot nor host.
    pod = Agent(channel=served.channel, hostname="pod", boot_id="boot-1", in_container=True)
    older = Agent(channel=served.channel)
    for agent in (one, pod, older):
        await agent.connect()
        await agent.send(1)
        assert not [each for each in await agent.acknowledged(1) if each.HasField("same_identity")]
    clone = Agent(channel=served.channel, hostname="clone", boot_id="boot-2")
    await clone.connect()
    assert list((await clone.read()).same_identity.hostnames) == ["one", "pod"]
    assert list((await one.read()).same_identity.hostnames) == ["clone"]
    clone.call.cancel()
    assert list((await one.read()).same_identity.hostnames) == []


async def test_agents_are_told_why_nothing_is_stored_and_that_it_is_over(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "runs.duckdb")) as store:
        faults = ["before commit"] * 1000
        settings = replace(SETTINGS, ingest=replace(SETTINGS.ingest, first_retry_seconds=0.01))
        collector = Collector(failing(store, faults), settings, summarize=no_summary)
        address = await collector.start()
        async with grpc.aio.insecure_channel(str(address)) as channel:
            agent = Agent(channel=channel)
            await agent.connect()
            await agent.send(1)
            assert "nothing is stored" in (await agent.read()).pace.trouble
            late = Agent(channel=channel, node_uuid="node-2")
            faults.clear()
            last = await agent.acknowledged(1)
            assert {message.pace.trouble for message in last if message.HasField("pace")} <= {""}
            await late.connect()
        await collector.stop()
