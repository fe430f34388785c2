"""The agent's half of the stream against a real gRPC server that follows a script."""

import itertools
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from gpuagent.clock import SystemClock
from gpuagent.delivery.spool import Entry, Spool
from gpuagent.delivery.stream import Orders
from gpuagent.delivery.uplink import Access, Uplink
from gpuagent.event_loop import EventLoop
from gpuagent.runs.output import Piece
from gpuagent.sampling.rows import RecordBuffer
from gpuagent_common.connection import MAX_MESSAGE_BYTES
from gpuagent_common.errors import GpuAgentError
from gpuagent_proto.v1 import telemetry_pb2 as telemetry
from gpuagent_proto.v1.run_pb2 import RunSpec
from gpuagent_proto.v1.telemetry_service_pb2_grpc import (
    TelemetryServiceServicer,
    add_TelemetryServiceServicer_to_server,
)
from tests.support.servers import LIMIT_SECONDS, until

Requests = Iterator[telemetry.AgentMessage]
Replies = Iterator[telemetry.CollectorMessage]
Script = Callable[[Requests, grpc.ServicerContext], Replies]


class ScriptedCollector(TelemetryServiceServicer):
    """Each connection is answered by the next script; the last one is used again."""

    def __init__(self, *scripts: Script) -> None:
        self.scripts = list(scripts)
        self.hellos: queue.SimpleQueue[telemetry.Hello] = queue.SimpleQueue()
        self.taken: list[tuple[int, int]] = []

    def Connect(self, request_iterator: Requests, context: grpc.ServicerContext) -> Replies:  # noqa: N802
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        self.hellos.put(next(request_iterator).hello)
        yield from script(request_iterator, context)


def welcome() -> telemetry.CollectorMessage:
    return telemetry.CollectorMessage(welcome=telemetry.Welcome(protocol_version=1, flush_interval_millis=1000))


def batches(requests: Requests) -> Iterator[telemetry.Batch]:
    return (message.batch for message in requests if message.HasField("batch"))


def ack(batch: telemetry.Batch) -> telemetry.CollectorMessage:
    mark = telemetry.Mark(session_id=batch.session_id, number=batch.number)
    return telemetry.CollectorMessage(ack=telemetry.Ack(marks=[mark]))


class Delivery:
    """An uplink with a real spool, connected to a scripted collector."""

    def __init__(self, folder: Path, address: str) -> None:
        token = folder / "token"
        token.write_text("token")
        token.chmod(0o600)
        self.spool = Spool(folder / "spool.sqlite", node_uuid="n", limit_bytes=1 << 30)
        self.launched: list[RunSpec] = []
        self.cancelled: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.paces: list[tuple[float, float]] = []
        orders = Orders(
            launch=self.launch,
            cancel=self.cancelled.put,
            read_output=lambda run_id, stream, offset: Piece(
                text=f"{run_id} {stream} {offset}", next_offset_bytes=1, at_end=True
            ),
            pace=lambda *seconds: self.paces.append(seconds),
            allows_commands=False,
        )
        self.buffer = RecordBuffer()
        self.uplink = Uplink(
            access=Access(address=address, token_file=token),
            spool=self.spool,
            buffer=self.buffer,
            clock=SystemClock(),
            orders=orders,
            hostname="node-1",
        )

    def launch(self, spec: RunSpec) -> list[str]:
        if spec.workload == "unknown":
            raise GpuAgentError("no such workload")
        self.launched.append(spec)
        return ["run-1"]

    def add(self, *texts: str) -> None:
        self.spool.append(
            [Entry(records=text.encode(), droppable=True, from_unix_nano=0, to_unix_nano=1) for text in texts]
        )
        self.uplink.notify()

    def await_error(self, words: str) -> None:
        until(lambda: words in (self.uplink.last_error or ""), f"an error with {words!r}")


@contextmanager
def delivery(folder: Path, *scripts: Script) -> Iterator[tuple[Delivery, ScriptedCollector]]:
    collector = ScriptedCollector(*scripts)
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    add_TelemetryServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    agent = Delivery(folder, f"127.0.0.1:{port}")
    loop = EventLoop("uplink")
    loop.start(agent.uplink.run())
    try:
        yield agent, collector
    finally:
        loop.close()
        server.stop(None).wait()
        agent.spool.close()


def acknowledging(note: Callable[[telemetry.Batch], object] = lambda _batch: None) -> Script:

    def script(requests: Requests, _context: grpc.ServicerContext) -> Replies:
        yield welcome()
        for batch in batches(requests):
            note(batch)
            yield ack(batch)

    return script


acknowledge_all = acknowledging()


class Window:
    """A script that takes a full window of messages, and acknowledges it only after `release`."""

    def __init__(self) -> None:
        self.taken: list[telemetry.Batch] = []
        self.is_full, self.release = threading.Event(), threading.Event()

    def __call__(self, requests: Requests, _context: grpc.ServicerContext) -> Replies:
        yield welcome()
        self.taken = list(itertools.islice(batches(requests), 64))
        self.is_full.set()
        self.release.wait()
        yield ack(self.taken[-1])
        for batch in batches(requests):
            yield ack(batch)


def test_the_backlog_is_sent_in_order_until_acknowledged(tmp_path: Path) -> None:
    seen: list[bytes] = []
    with delivery(tmp_path, acknowledging(lambda batch: seen.append(batch.records))) as (agent, _):
        agent.add(*map(str, range(200)))
        until(lambda: agent.spool.waiting() == 0, "all acknowledgements")
    assert seen == [str(number).encode() for number in range(200)]


def test_no_more_than_the_window_is_sent_without_an_acknowledgement(tmp_path: Path) -> None:
    window = Window()
    with delivery(tmp_path, window) as (agent, _):
        agent.add(*map(str, range(100)))
        window.is_full.wait()
        assert (agent.uplink.tally.sent_messages, agent.spool.waiting()) == (64, 100)
        window.release.set()
        until(lambda: agent.spool.waiting() == 0, "the rest")


def test_unacknowledged_messages_are_sent_again_on_the_next_connection(tmp_path: Path) -> None:
    first: list[int] = []

    def breaks(requests: Requests, context: grpc.ServicerContext) -> Replies:
        yield welcome()
        for batch in batches(requests):
            first.append(batch.number)
            if len(first) == 3:
                yield ack(batch)
                context.abort(grpc.StatusCode.INTERNAL, "broken")

    second: list[int] = []
    with delivery(tmp_path, breaks, acknowledging(lambda batch: second.append(batch.number))) as (agent, _):
        agent.add(*map(str, range(10)))
        until(lambda: agent.spool.waiting() == 0, "all acknowledgements")
    assert second[0] <= 4
    assert set(first[:3]) | set(second) == set(range(1, 11))


def test_a_hello_lists_every_session_that_has_messages(tmp_path: Path) -> None:
    before = Spool(tmp_path / "spool.sqlite", node_uuid="another node", limit_bytes=1 << 30)
    before.append([Entry(records=b"old", droppable=True, from_unix_nano=0, to_unix_nano=1)])
    before.close()
    with delivery(tmp_path, acknowledge_all) as (agent, collector):
        hello = collector.hellos.get(timeout=LIMIT_SECONDS)
        assert [(session.session_uuid, session.node_uuid) for session in hello.sessions] == [
            (before.session.session_uuid, "another node"),
            (agent.spool.session.session_uuid, "n"),
        ]
        until(lambda: agent.spool.waiting() == 0, "the old message's acknowledgement")


def test_a_rejected_message_or_one_over_the_size_limit_does_not_hold_up_the_rest(tmp_path: Path) -> None:
    def script(requests: Requests, _context: grpc.ServicerContext) -> Replies:
        yield welcome()
        for batch in batches(requests):
            if batch.records == b"poison":
                refused = telemetry.Rejection(session_id=batch.session_id, number=batch.number, reason="no such table")
                yield telemetry.CollectorMessage(rejection=refused)
            yield ack(batch)

    with delivery(tmp_path, script) as (agent, _):
        agent.add("a", "poison", "b", "x" * MAX_MESSAGE_BYTES, "c")
        until(lambda: agent.spool.waiting() == 0, "all acknowledgements")
        agent.spool.append([])
        poison, too_large = agent.spool._rows("SELECT number, reason, records FROM rejected ORDER BY number", ())
    assert poison == (2, "no such table", b"poison")
    assert (too_large[0], len(too_large[2])) == (4, MAX_MESSAGE_BYTES)


def test_launches_cancels_and_paces_are_obeyed(tmp_path: Path) -> None:
    replies: queue.SimpleQueue[telemetry.LaunchReply] = queue.SimpleQueue()

    def script(requests: Requests, _context: grpc.ServicerContext) -> Replies:
        yield welcome()
        for name in ("mnist", "unknown"):
            launch = telemetry.Launch(launch_id=name, spec=RunSpec(workload=name))
            yield telemetry.CollectorMessage(launch=launch)
        yield telemetry.CollectorMessage(cancel=telemetry.CancelRun(run_id="run-1"))
        yield telemetry.CollectorMessage(
            pace=telemetry.Pace(flush_interval_millis=2000, idle_flush_interval_millis=5000)
        )
        for message in requests:
            if message.HasField("launch_reply"):
                replies.put(message.launch_reply)

    with delivery(tmp_path, script) as (agent, _):
        accepted, refused = replies.get(timeout=LIMIT_SECONDS), replies.get(timeout=LIMIT_SECONDS)
        assert (accepted.launch_id, list(accepted.run_ids), accepted.refusal) == ("mnist", ["run-1"], "")
        assert (refused.launch_id, list(refused.run_ids), refused.refusal) == ("unknown", [], "no such workload")
        assert agent.cancelled.get(timeout=LIMIT_SECONDS) == "run-1"
        # A collector that knows no other pace for idle nodes sends none.
        until(lambda: agent.paces == [(1.0, 1.0), (2.0, 5.0)], "both paces")


def test_the_clock_offset_is_the_median_of_several_round_trips(tmp_path: Path) -> None:
    ahead_nano = 3_600 * 10**9

    def script(requests: Requests, _context: grpc.ServicerContext) -> Replies:
        yield welcome()
        for message in requests:
            if message.HasField("clock_probe"):
                sent = message.clock_probe.agent_unix_nano
                reply = telemetry.ClockReply(agent_unix_nano=sent, collector_unix_nano=sent + ahead_nano)
                yield telemetry.CollectorMessage(clock_reply=reply)

    with delivery(tmp_path, script) as (agent, _):
        samples = until(lambda: agent.buffer.drain()[0].get("clock_offsets"), "an estimate")
    assert samples
    (row,) = samples
    offset, trip = row["offset_seconds"], row["round_trip_seconds"]
    assert isinstance(offset, float)
    assert isinstance(trip, float)
    assert abs(offset - 3_600 + trip / 2) < trip


def test_a_slow_network_makes_no_clock_wrong(tmp_path: Path) -> None:
    second = 10**9

    def script(requests: Requests, _context: grpc.ServicerContext) -> Replies:
        yield welcome()
        for message in requests:
            if message.HasField("clock_probe"):
                # As if the probe had been sent 10 s before: the clocks differ by 4 s, or by nothing.
                sent = message.clock_probe.agent_unix_nano - 10 * second
                reply = telemetry.ClockReply(agent_unix_nano=sent, collector_unix_nano=sent + 9 * second)
                yield telemetry.CollectorMessage(clock_reply=reply)

    with delivery(tmp_path, script) as (agent, _):
        samples = until(lambda: agent.buffer.drain()[0].get("clock_offsets"), "an estimate")
        assert agent.uplink.warnings.texts() == []
    assert samples
    offset_seconds = samples[0]["offset_seconds"]
    assert isinstance(offset_seconds, float)
    assert offset_seconds > 2


def test_the_trouble_of_a_connection_ends_with_it(tmp_path: Path) -> None:
    seen: list[str] = []
    is_over = threading.Event()

    def has_trouble(_requests: Requests, _context: grpc.ServicerContext) -> Replies:
        yield welcome()
        yield telemetry.CollectorMessage(pace=telemetry.Pace(flush_interval_millis=1000, trouble="the disk is full"))
        until(lambda: agent.uplink.trouble == "the disk is full", "the collector's trouble")
        seen.append(agent.uplink.trouble)

    def says_nothing(_requests: Requests, _context: grpc.ServicerContext) -> Replies:
        yield welcome()
        is_over.wait(LIMIT_SECONDS)

    with delivery(tmp_path, has_trouble, says_nothing) as (agent, _):
        until(lambda: seen and agent.uplink.connected and not agent.uplink.trouble, "a connection without trouble")
        is_over.set()


def test_an_unreadable_spool_is_reported_and_does_not_end_the_uplink(tmp_path: Path) -> None:
    window = Window()
    with delivery(tmp_path, window, acknowledge_all) as (agent, _):
        agent.add(*map(str, range(100)))
        window.is_full.wait()
        damage = sqlite3.connect(tmp_path / "spool.sqlite")
        damage.execute("ALTER TABLE messages RENAME TO mislaid")
        window.release.set()
        agent.await_error("the spool cannot be read")
        damage.execute("ALTER TABLE mislaid RENAME TO messages")
        damage.close()
        until(lambda: agent.spool.waiting() == 0, "the rest")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, "collector tokens create agent --node NODE | gpuagent join "),
        (grpc.StatusCode.FAILED_PRECONDITION, "speaks protocol 2"),
    ],
)
def test_a_refused_stream_is_explained(tmp_path: Path, code: grpc.StatusCode, words: str) -> None:
    def script(_requests: Requests, context: grpc.ServicerContext) -> Replies:
        context.abort(code, "this collector speaks protocol 2")

    with delivery(tmp_path, script) as (agent, _):
        agent.await_error(words)


def test_a_missing_token_file_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    gone = threading.Event()

    def ends(_requests: Requests, _context: grpc.ServicerContext) -> Replies:
        yield welcome()
        gone.wait()

    with delivery(tmp_path, ends) as (agent, _):
        until(lambda: agent.uplink.connected, "the connection")
        (tmp_path / "token").unlink()
        gone.set()
        agent.await_error("no token file")


def test_a_wrong_clock_and_another_machine_with_the_identity_are_warned_of_until_they_are_gone(tmp_path: Path) -> None:
    offsets = [172_800 * 10**9] * 5
    hostnames = queue.SimpleQueue[list[str]]()
    hostnames.put(["clone"])

    def script(requests: Requests, _context: grpc.ServicerContext) -> Replies:
        yield welcome()
        for message in requests:
            if message.HasField("clock_probe"):
                sent = message.clock_probe.agent_unix_nano
                reply = telemetry.ClockReply(agent_unix_nano=sent, collector_unix_nano=sent + offsets.pop())
                yield telemetry.CollectorMessage(clock_reply=reply)
            while not hostnames.empty():
                others = telemetry.SameIdentity(hostnames=hostnames.get())
                yield telemetry.CollectorMessage(same_identity=others)
            if message.HasField("batch"):
                yield ack(message.batch)

    with delivery(tmp_path, script) as (agent, _):
        warnings = agent.uplink.warnings
        until(lambda: len(warnings.texts()) == 2, "both warnings")
        said = " ".join(warnings.texts())
        assert "2 d behind" in said
        assert "clone" in said
        assert "--node-id" in said
        hostnames.put([])
        agent.add("a message that the server answers")
        until(lambda: len(warnings.texts()) == 1, "the end of the other machine")


def test_the_loss_of_the_collector_and_its_return_are_logged_once_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def lose(_requests: Requests, context: grpc.ServicerContext) -> Replies:
        yield welcome()
        context.abort(grpc.StatusCode.UNAVAILABLE, "the collector is stopping")

    with delivery(tmp_path, lose, acknowledge_all) as (agent, _):
        agent.add("first")
        until(lambda: agent.spool.waiting() == 0, "an empty spool")
    logged = [record.getMessage() for record in caplog.records if record.name == "gpuagent.delivery.uplink"]
    assert len(logged) == 2
    # Its words are lost where gRPC was just sending.
    assert logged[0].startswith("the collector at 127.0.0.1:")
    assert logged[1].startswith("connected to the")


def test_why_a_collector_stores_nothing_is_known_until_it_stores_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    has_room = threading.Event()

    def full(requests: Requests, _context: grpc.ServicerContext) -> Replies:
        yield welcome()
        batch = next(batches(requests))
        yield telemetry.CollectorMessage(pace=telemetry.Pace(flush_interval_millis=1000, trouble="the disk is full"))
        has_room.wait()
        yield ack(batch)
        list(requests)

    with delivery(tmp_path, full) as (agent, _):
        agent.add("first")
        until(lambda: agent.uplink.trouble == "the disk is full", "the collector's trouble")
        has_room.set()
        until(lambda: agent.spool.waiting() == 0 and not agent.uplink.trouble, "an empty spool and no trouble")
    assert "disk is full" in caplog.text
