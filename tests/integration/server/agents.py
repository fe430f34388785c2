"""The agent's half of the conversation with a collector in this process, spoken by hand."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import grpc

from gpuagent.sampling.rows import encode_records
from gpuagent_collector.server.app import Collector, ServerSettings
from gpuagent_collector.store import Store
from gpuagent_common.address import Address
from gpuagent_common.connection import bearer
from gpuagent_common.keys import key
from gpuagent_proto.v1 import PROTOCOL_VERSION
from gpuagent_proto.v1 import telemetry_pb2 as wire
from gpuagent_proto.v1.telemetry_service_pb2_grpc import TelemetryServiceStub
from tests.support.stores import open_store

TOKEN = "let-me-in"
SETTINGS = ServerSettings(listen=Address(host="127.0.0.1", port=0), token=TOKEN)


def no_summary(connection: duckdb.DuckDBPyConnection, run_ids: Sequence[str], computed_at: datetime) -> None:
    """Compute nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    collector: Collector
    address: Address
    store: Store
    channel: grpc.aio.Channel

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        connection = self.store.connect()
        rows = connection.execute(sql).fetchall()
        connection.close()
        return rows


@asynccontextmanager
async def serving(
    folder: Path, settings: ServerSettings = SETTINGS, summarize: Callable[..., None] = no_summary
) -> AsyncIterator[Served]:
    with open_store(str(folder / "runs.duckdb")) as store:
        collector = Collector(store, replace(settings), summarize=summarize)
        address = await collector.start()
        try:
            async with grpc.aio.insecure_channel(str(address)) as channel:
                yield Served(collector=collector, address=address, store=store, channel=channel)
        finally:
            await collector.stop()


def core_rows(*cores: int) -> bytes:
    return encode_records({"core_samples": [{"core": core} for core in cores]})


Call = grpc.aio.StreamStreamCall[wire.AgentMessage, wire.CollectorMessage]


@dataclass(slots=True, kw_only=True)
class Agent:
    """One agent with one session; `connect` may be called again for another stream of it."""

    channel: grpc.aio.Channel
    session_uuid: str = field(default_factory=lambda: uuid.uuid4().hex)
    node_uuid: str = "node-1"
    allows_commands: bool = False
    takes_experiments: bool = True
    token: str = TOKEN
    hostname: str = ""
    boot_id: str = ""
    in_container: bool = False
    call: Call = field(init=False)

    @property
    def session_id(self) -> int:
        return key(self.session_uuid)

    def hello(self) -> wire.AgentMessage:
        session = wire.SpooledSession(session_uuid=self.session_uuid, node_uuid=self.node_uuid)
        hello = wire.Hello(
            protocol_version=PROTOCOL_VERSION,
            agent_version="0.0.1",
            node_uuid=self.node_uuid,
            sessions=[session],
            allows_commands=self.allows_commands,
            takes_experiments=self.takes_experiments,
            hostname=self.hostname,
            boot_id=self.boot_id,
            in_container=self.in_container,
        )
        return wire.AgentMessage(hello=hello)

    def open(self) -> Call:
        self.call = TelemetryServiceStub(self.channel).Connect(metadata=bearer(self.token))
        return self.call

    async def connect(self) -> wire.Welcome:
        self.open()
        await self.call.write(self.hello())
        return (await self.read()).welcome

    async def send(self, number: int, records: bytes | None = None) -> None:
        payload = core_rows(number) if records is None else records
        batch = wire.Batch(session_id=self.session_id, number=number, records=payload)
        await self.call.write(wire.AgentMessage(batch=batch))

    async def read(self) -> wire.CollectorMessage:
        message = await self.call.read()
        assert isinstance(message, wire.CollectorMessage), await ending(self.call)
        return message

    async def acknowledged(self, number: int) -> list[wire.CollectorMessage]:
        messages = [await self.read()]
        while self.session_marks(messages[-1]) != [number]:
            messages.append(await self.read())
        return messages

    def session_marks(self, message: wire.CollectorMessage) -> list[int]:
        return [mark.number for mark in message.ack.marks if mark.session_id == self.session_id]


async def connected(served: Served, **given: Any) -> Agent:
    agent = Agent(channel=served.channel, **given)
    await agent.connect()
    return agent


async def ending(call: Call) -> tuple[grpc.StatusCode, str]:
    """Read a stream to its end; return how it ended."""
    try:
        while await call.read() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return await call.code(), await call.details()


async def until(condition: Callable[[], bool]) -> None:
    """Let the event loop run until it is so; the test's time limit ends a wait in vain."""
    while not condition():
        await asyncio.sleep(0.01)
