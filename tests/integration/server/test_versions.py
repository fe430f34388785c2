"""Agents of earlier releases, by what each of them really said; tests/fault has what later ones may say."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from gpuagent_common.connection import bearer
from gpuagent_proto.v1 import telemetry_pb2 as wire
from tests.integration.server.agents import TOKEN, Served, serving

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
