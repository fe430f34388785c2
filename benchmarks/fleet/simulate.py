"""Simulated nodes that send a message each second to one collector on a lake, and its resources."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.collector_process import CollectorProcess, start_collector
from benchmarks.fleet.messages import node_messages
from benchmarks.lake_catalog import catalog, lake_files
from gpuagent_common.channel import open_aio_channel
from gpuagent_common.connection import bearer, read_token
from gpuagent_common.keys import key
from gpuagent_proto.v1 import PROTOCOL_VERSION
from gpuagent_proto.v1 import telemetry_pb2 as telemetry
from gpuagent_proto.v1.telemetry_service_pb2_grpc import TelemetryServiceStub
from tests.support.postgres import Postgres
from tests.support.servers import Node

_OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The resources of a collector for a number of nodes and seconds."""

    nodes: int
    # What each node sent, one message a second.
    sampled_seconds: int
    # Until everything was acknowledged.
    seconds: float
    wire_bytes: int
    cpu_seconds: float
    commits: int
    # Time in which the collector committed.
    commit_seconds: float
    files: int
    catalog_rows: int
    # In files, after `collector compact`.
    stored_bytes: int
    rss_mib: float


def simulate(folder: Path, server: Postgres, *, nodes: int, seconds: int) -> Observed:
    """Run a number of nodes on a new lake until everything is acknowledged."""
    start_unix_nano = time.time_ns() - seconds * 10**9
    messages = [list(node_messages(node, seconds, start_unix_nano)) for node in range(nodes)]
    lake = f"ducklake:postgres:{server.database()}"
    with Node(folder) as node:
        collector = start_collector(node, "--store", lake, "--data", str(folder / "files"))
        process = psutil.Process(collector.process.pid)
        before, catalog_before = process.cpu_times(), catalog(server, lake)
        elapsed_seconds = asyncio.run(_run(collector, messages))
        after, commits, files = process.cpu_times(), collector.commits(), lake_files(lake)
        catalog_rows = catalog(server, lake).rows - catalog_before.rows
        rss_mib = process.memory_info().rss / 2**20
        node.run("collector", "compact", "--store", lake)
    return Observed(
        nodes=nodes,
        sampled_seconds=seconds,
        seconds=elapsed_seconds,
        wire_bytes=sum(len(content) for each in messages for content in each),
        cpu_seconds=after.user + after.system - before.user - before.system,
        commits=commits.count,
        commit_seconds=commits.total_seconds,
        files=files.count,
        catalog_rows=catalog_rows,
        stored_bytes=lake_files(lake).size_bytes,
        rss_mib=rss_mib,
    )


async def _run(collector: CollectorProcess, messages: Sequence[Sequence[bytes]]) -> float:
    """Return the seconds from the first message to the last acknowledgement."""
    ready = asyncio.Semaphore(0)
    go = asyncio.Event()
    agents = [
        asyncio.create_task(_speak(collector, node, len(messages), each, ready, go))
        for node, each in enumerate(messages)
    ]
    for _ in agents:
        await ready.acquire()
    start = time.monotonic()
    go.set()
    await asyncio.gather(*agents)
    return time.monotonic() - start


async def _speak(
    collector: CollectorProcess,
    node: int,
    nodes: int,
    messages: Sequence[bytes],
    ready: asyncio.Semaphore,
    go: asyncio.Event,
) -> None:
    uuid = f"simulated node {node}"
    session = telemetry.SpooledSession(session_uuid=uuid, node_uuid=uuid)
    hello = telemetry.Hello(protocol_version=PROTOCOL_VERSION, node_uuid=uuid, sessions=[session])

    async def requests() -> AsyncIterator[telemetry.AgentMessage]:
        yield telemetry.AgentMessage(hello=hello)
        await go.wait()
        begin = time.monotonic() + node / nodes
        for number, content in enumerate(messages):
            await asyncio.sleep(max(0.0, begin + number - time.monotonic()))
            batch = telemetry.Batch(session_id=key(uuid), number=number + 1, records=content)
            yield telemetry.AgentMessage(batch=batch)

    async with open_aio_channel(collector.address, None, _OWN_CONNECTION) as channel:
        metadata = bearer(read_token(collector.token_file))
        async for answer in TelemetryServiceStub(channel).Connect(requests(), metadata=metadata):
            if answer.HasField("welcome"):
                ready.release()
            if any(mark.number == len(messages) for mark in answer.ack.marks):
                return
