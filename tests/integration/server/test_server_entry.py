import os
import re
import secrets
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from gpuagent_collector.server.throttle import (
    LONGEST_FLUSH_MILLIS,
    MAX_LAG_SECONDS,
    PATIENCE_SECONDS,
    WATCHED_SECONDS,
    Pace,
    flush_interval_millis,
)
from gpuagent_collector.trust.private_files import check_private, ensure_token
from gpuagent_common.address import Address, check_free
from gpuagent_common.connection import bearer
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_proto.v1.query_service_pb2 import QueryRequest
from gpuagent_proto.v1.query_service_pb2_grpc import QueryServiceStub
from gpuagent_proto.v1.run_service_pb2 import CancelRequest
from gpuagent_proto.v1.run_service_pb2_grpc import RunServiceStub
from gpuagent_proto.v1.telemetry_service_pb2_grpc import TelemetryServiceStub
from tests.integration.server.agents import TOKEN, Served

Metadata = tuple[tuple[str, str], ...]


async def _query(channel: grpc.aio.Channel, metadata: Metadata) -> None:
    async for _ in QueryServiceStub(channel).Query(QueryRequest(sql="SELECT 1"), metadata=metadata):
        pass


async def _cancel(channel: grpc.aio.Channel, metadata: Metadata) -> None:
    await RunServiceStub(channel).Cancel(CancelRequest(run_id="r"), metadata=metadata)


async def _connect(channel: grpc.aio.Channel, metadata: Metadata) -> None:
    await TelemetryServiceStub(channel).Connect(metadata=metadata).read()


async def _reflect(channel: grpc.aio.Channel, metadata: Metadata) -> None:
    await _reflection(channel).ServerReflectionInfo(metadata=metadata).read()


def _reflection(channel: grpc.aio.Channel) -> Any:
    return reflection_pb2_grpc.ServerReflectionStub(channel)  # type: ignore[arg-type] # its stub knows only one kind


async def test_nobody_enters_without_the_token(served: Served) -> None:
    for metadata in ((), bearer("guess"), bearer(TOKEN + "x"), (("authorization", TOKEN),)):
        for call in (_query, _cancel, _connect, _reflect):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(served.channel, metadata)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert "--token-file" in (refused.value.details() or "")


async def test_anybody_may_ask_whether_the_collector_is_well(served: Served) -> None:
    health: Any = health_pb2_grpc.HealthStub(served.channel)
    for service in ("", "gpuagent_proto.v1.TelemetryService", "gpuagent_proto.v1.QueryService"):
        answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_who_has_the_token_may_list_the_services_and_query(served: Served) -> None:
    await _query(served.channel, bearer(TOKEN))
    call = _reflection(served.channel).ServerReflectionInfo(metadata=bearer(TOKEN))
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    names = {service.name for service in (await call.read()).list_services_response.service}
    assert {f"gpuagent_proto.v1.{name}Service" for name in ("Telemetry", "Query", "Run")} <= names
    call.cancel()


@pytest.mark.parametrize(
    ("text", "loopback"),
    [(text, True) for text in ("127.0.0.1:50051", "127.9.9.9:0", "[::1]:1", "localhost:1")]
    + [(text, False) for text in ("0.0.0.0:1", "[::]:1", "192.168.1.1:1", "localhost.example.org:1")],
)
def test_addresses_are_read_and_known_as_loopback_or_not(text: str, loopback: bool) -> None:
    assert Address.parse(text).is_loopback() is loopback
    assert str(Address.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "remedy"),
    [(text, "write HOST:PORT") for text in ("", "50051", "host", "host:", ":1", "host:port", "host:-1")]
    + [("host:65536", "use a port from 0 to 65535")],
)
def test_what_is_no_address_is_misuse(text: str, remedy: str) -> None:
    with pytest.raises(MisuseError, match=remedy):
        Address.parse(text)


async def test_a_second_collector_cannot_share_a_port(served: Served) -> None:
    words = f"cannot listen on {served.address}: Address already in use"
    with pytest.raises(GpuAgentError, match=re.escape(words)):
        check_free(served.address)


def test_a_token_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "token"
    token = ensure_token(path)
    assert len(token) >= 40
    assert ensure_token(path) == token
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.chmod(0o644)
    with pytest.raises(GpuAgentError, match="run: chmod 600"):
        ensure_token(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_root_takes_no_token_that_another_user_knows(tmp_path: Path) -> None:
    """As with `sudo -E`, which keeps the other user's XDG_CONFIG_HOME: they would be the owner of root's collector."""
    token, tokens = tmp_path / "token", tmp_path / "tokens.json"
    for path in (token, tokens):
        path.write_text("known\n")
        path.chmod(0o600)
        os.chown(path, 65_533, 65_533)
    with pytest.raises(GpuAgentError, match="belongs to another user"):
        ensure_token(token)
    with pytest.raises(GpuAgentError, match="belongs to another user"):
        check_private(tokens)


def test_a_collector_takes_the_token_that_another_makes_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def make_while_another_does(_size: int) -> str:
        monkeypatch.setattr(secrets, "token_urlsafe", lambda _size: "first")
        made.append(ensure_token(tmp_path / "token"))
        return "second"

    monkeypatch.setattr(secrets, "token_urlsafe", make_while_another_does)
    assert ensure_token(tmp_path / "token") == "first"
    assert made == ["first"]
    assert [each.name for each in tmp_path.iterdir()] == ["token"]


def test_a_token_file_that_cannot_be_made_is_named() -> None:
    with pytest.raises(GpuAgentError, match=r"file /sys/token: .*; give --token-file"):
        ensure_token(Path("/sys/token"))


def test_agents_flush_the_less_often_the_fuller_the_queue_is() -> None:
    intervals = [flush_interval_millis(fullness, 1000) for fullness in (0, 0.24, 0.25, 0.5, 0.75, 1)]
    assert intervals == [1000, 1000, 2000, 5000, 10_000, 10_000]
    assert flush_interval_millis(1, 5000) == LONGEST_FLUSH_MILLIS
    assert flush_interval_millis(1, 20_000) == 20_000


def test_a_queue_that_is_short_between_two_commits_does_not_have_agents_told_again_and_again() -> None:
    seconds = 0.0
    pace = Pace(base_millis=1000, limit_bytes=100, monotonic=lambda: seconds)
    told = []
    for queued_bytes in (26, 0, 30, 0, 55, 30, 0):
        told.append(pace.current_millis if pace.change(queued_bytes, lag_seconds=0.0) else None)
        seconds += PATIENCE_SECONDS / 2
    assert told == [2000, None, None, None, 5000, None, 1000]


def test_agents_are_slowed_when_messages_wait_for_long_however_short_they_are() -> None:
    pace = Pace(base_millis=1000, limit_bytes=100, monotonic=lambda: 0.0)
    told = []
    for share in (0.2, 0.3, 0.5, 1):
        pace.change(0, lag_seconds=share * MAX_LAG_SECONDS)
        told.append((pace.current_millis, pace.idle_millis))
    assert told == [(1000, 5000), (2000, 5000), (5000, 5000), (10_000, 10_000)]


def test_agents_of_idle_nodes_flush_as_often_as_others_while_somebody_asks() -> None:
    seconds = 0.0
    pace = Pace(base_millis=1000, limit_bytes=100, monotonic=lambda: seconds)
    assert (pace.current_millis, pace.idle_millis) == (1000, 5000)
    pace.note_question()
    assert pace.change(0, lag_seconds=0.0)
    assert pace.idle_millis == 1000
    seconds = WATCHED_SECONDS - 1
    pace.note_question()
    seconds = WATCHED_SECONDS + 1
    assert not pace.change(0, lag_seconds=0.0)
    seconds = 2 * WATCHED_SECONDS
    assert pace.change(0, lag_seconds=0.0)
    assert pace.idle_millis == 5000
