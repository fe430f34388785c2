import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import grpc
import pytest

from gpuagent.sampling.rows import encode_records
from gpuagent_collector import __version__
from gpuagent_collector.ingest.ingest import IngestSettings
from gpuagent_collector.server import throttle
from gpuagent_collector.server.app import Collector
from gpuagent_collector.store import Store
from gpuagent_proto.v1 import PROTOCOL_VERSION
from gpuagent_proto.v1 import telemetry_pb2 as wire
from tests.integration.server.agents import SETTINGS, Agent, Served, core_rows, ending, no_summary, serving, until
from tests.unit.collector_store.faults import failing

ENDED = encode_records({"run_states": [{"run_id": "r", "status": "succeeded"}]})


class HeldWriter:
    """Holds the writer's thread up, by the run that ends in a first message, until it is let go."""

    def __init__(self) -> None:
        self.held = threading.Event()
        self._go = threading.Event()

    def __call__(self, connection: duckdb.DuckDBPyConnection, run_ids: Sequence[str], computed_at: datetime) -> None:
        self.held.set()
        self._go.wait()

    async def hold(self, agent: Agent) -> None:
        await agent.connect()
        await agent.send(1, ENDED)
        await agent.acknowledged(1)
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
        await until(lambda: served.collector.ingest.queued_bytes == sum(len(core_rows(n)) for n in range(2, 202)))
        writer.release()
        assert agent.session_marks(await agent.read()) == [201]


async def test_agents_are_slowed_while_the_queue_is_long_and_speed_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttle, "PATIENCE_SECONDS", 0.0)
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


async def test_an_agent_that_does_not_listen_holds_up_no_other(served: Served) -> None:
    deaf, other = Agent(channel=served.channel), Agent(channel=served.channel, node_uuid="node-2")
    await deaf.connect()
    await other.connect()
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
        await until(lambda: served.collector.ingest.queued_bytes > 0)
        welcome = asyncio.create_task(agent.connect())
        code, words = await ending(older)
        writer.release()
        assert [mark.number for mark in (await welcome).marks] == [2]
        assert (code, words) == (
            grpc.StatusCode.ABORTED,
            "a newer stream of the same session has taken over",
        )


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
    with Store.open(str(tmp_path / "runs.duckdb")) as store:
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


def test_who_says_nothing_is_cut_off(tmp_path: Path) -> None:
    async def scenario() -> tuple[grpc.StatusCode, str]:
        async with serving(tmp_path, replace(SETTINGS, hello_seconds=0.01)) as served:
            return await ending(Agent(channel=served.channel).open())

    assert asyncio.run(scenario()) == (grpc.StatusCode.DEADLINE_EXCEEDED, "no hello within 0.01 s")


async def _next(agent: Agent) -> wire.CollectorMessage | None:
    try:
        return await agent.read()
    except (grpc.aio.AioRpcError, AssertionError):
        return None


def _other_version(agent: Agent) -> Sequence[wire.AgentMessage]:
    hello = agent.hello()
    hello.hello.protocol_version = PROTOCOL_VERSION + 7
    return [hello]


def _no_hello(agent: Agent) -> Sequence[wire.AgentMessage]:
    return [wire.AgentMessage(clock_probe=wire.ClockProbe())]


def _two_hellos(agent: Agent) -> Sequence[wire.AgentMessage]:
    return [agent.hello(), agent.hello()]


def _strange_session(agent: Agent) -> Sequence[wire.AgentMessage]:
    return [agent.hello(), wire.AgentMessage(batch=wire.Batch(session_id=5, number=1))]


def _number_nought(agent: Agent) -> Sequence[wire.AgentMessage]:
    return [agent.hello(), wire.AgentMessage(batch=wire.Batch(session_id=agent.session_id))]


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        (
            _other_version,
            grpc.StatusCode.FAILED_PRECONDITION,
            f"the agent (0.0.1) uses protocol version {PROTOCOL_VERSION + 7}, the collector ({__version__}) version "
            f"{PROTOCOL_VERSION}; upgrade gpuagent on the collector's side",
        ),
        (_no_hello, grpc.StatusCode.INVALID_ARGUMENT, "the first message of a stream must be a hello"),
        (_two_hellos, grpc.StatusCode.INVALID_ARGUMENT, "a second hello on one stream"),
        (_strange_session, grpc.StatusCode.INVALID_ARGUMENT, "a batch of session 5, which the hello did not name"),
        (_number_nought, grpc.StatusCode.INVALID_ARGUMENT, "a batch with number 0; they begin with 1"),
    ],
)
def test_an_agent_that_does_not_keep_to_the_protocol_is_told_why_and_cut_off(
    tmp_path: Path,
    said: Callable[[Agent], Sequence[wire.AgentMessage]],
    code: grpc.StatusCode,
    words: str,
) -> None:
    async def scenario() -> Any:
        async with serving(tmp_path) as served:
            agent = Agent(channel=served.channel)
            call = agent.open()
            for message in said(agent):
                await call.write(message)
            return await ending(call)

    assert asyncio.run(scenario()) == (code, words)
