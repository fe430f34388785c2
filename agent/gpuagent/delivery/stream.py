"""The agent's half of one stream to a collector."""

import asyncio
import logging
import statistics
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass

from gpuagent import __version__
from gpuagent.clock import Clock
from gpuagent.delivery.spool import Spool
from gpuagent.facts import Machine
from gpuagent.runs.output import Piece
from gpuagent.sampling.rows import RecordBuffer
from gpuagent_common.clocks import describe_offset, is_clock_wrong
from gpuagent_common.connection import MAX_MESSAGE_BYTES
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.naming import shared_identity
from gpuagent_proto.v1 import PROTOCOL_VERSION
from gpuagent_proto.v1 import run_pb2 as run
from gpuagent_proto.v1 import telemetry_pb2 as telemetry

_LOG = logging.getLogger(__name__)

# Limit of messages without an acknowledgement: bounds memory on both sides.
_WINDOW_MESSAGES = 64

# Leaves room for the rest of a message.
_MAX_RECORDS_BYTES = MAX_MESSAGE_BYTES - 1024

UNKNOWN_MACHINE = Machine()

_PROBES = 5
_PROBE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """The requests that a collector may send to the agent."""

    # Queue the runs and return their identities; raises GpuAgentError to refuse.
    launch: Callable[[run.RunSpec], list[str]]
    cancel: Callable[[str], None]
    # Read a stream of a run from an offset (None: shortly before its end); raises GpuAgentError to refuse.
    read_output: Callable[[str, str, int | None], Piece]
    # Change the flush intervals, in seconds: while the node has a run, and otherwise.
    pace: Callable[[float, float], None]
    allows_commands: bool
    # Begin, report or cancel an experiment; None: the agent takes none.
    experiment: Callable[[telemetry.ExperimentOrder], telemetry.ExperimentReply] | None = None


@dataclass(slots=True)
class Tally:
    """Totals over all streams of an agent."""

    sent_messages: int = 0
    acknowledged_messages: int = 0
    rejected_messages: int = 0
    # Streams that a collector welcomed.
    connections: int = 0
    # Streams that ended with an error, or never began.
    failures: int = 0


class Warnings:
    """Warnings about the node, by kind; each is logged once while it lasts."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def set(self, kind: str, text: str | None) -> None:
        """Replace the warning of a kind; None: there is none any more."""
        if text is None:
            self._texts.pop(kind, None)
            return
        if kind not in self._texts:
            _LOG.warning("%s", text)
        self._texts[kind] = text

    def texts(self) -> list[str]:
        """Return the present warnings."""
        return list(self._texts.values())


class Stream:
    """One TelemetryService.Connect call, made in the event loop of the call.

    gRPC iterates over `requests` in a task of its own, and the caller passes every response to `take`.
    """

    def __init__(
        self,
        *,
        spool: Spool,
        buffer: RecordBuffer,
        clock: Clock,
        orders: Orders,
        hostname: str,
        tally: Tally,
        machine: Machine = UNKNOWN_MACHINE,
        warnings: Warnings | None = None,
    ) -> None:
        self._tally = tally
        self._hostname = hostname
        self._machine = machine
        self._warnings = warnings or Warnings()
        self._spool = spool
        self._buffer = buffer
        self._clock = clock
        self._orders = orders
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._replies: deque[telemetry.AgentMessage] = deque()
        self._sent_position = 0
        self._in_flight: set[tuple[int, int]] = set()
        self._round_trips: list[tuple[float, float]] = []
        self._next_estimate: asyncio.TimerHandle | None = None
        self._ended = False
        # Whether the collector has answered the hello.
        self.welcomed = False
        # Why the collector cannot store anything, in its words; empty: it can; None: it has not said.
        self.trouble: str | None = None
        # Whether the collector has acknowledged a message on this stream.
        self.acknowledged = False
        # The error that ended `requests` before `end`.
        self.failure: Exception | None = None

    def notify(self) -> None:
        """Wake the stream for new messages in the spool; safe from any thread."""
        self._loop.call_soon_threadsafe(self._wake.set)

    def end(self) -> None:
        """End `requests`."""
        self._ended = True
        self._wake.set()
        if self._next_estimate:
            self._next_estimate.cancel()

    async def requests(self) -> AsyncIterator[telemetry.AgentMessage]:
        """Yield messages to send until the stream ends."""
        try:
            yield telemetry.AgentMessage(hello=self._hello())
            while not self._ended:
                for message in self._due():
                    yield message
                await self._wake.wait()
                self._wake.clear()
        except Exception as error:  # noqa: BLE001
            # gRPC would swallow it; the call ends when the collector has answered what was sent.
            self.failure = error

    async def take(self, message: telemetry.CollectorMessage) -> None:
        """Act on a message of the collector."""
        match message.WhichOneof("message"):
            case "welcome":
                self._take_marks(message.welcome.marks)
                self._set_pace(message.welcome)
                self.welcomed = True
                self._tally.connections += 1
                self._estimate_offset()
            case "ack":
                self._take_marks(message.ack.marks)
                self.acknowledged, self.trouble = True, ""
            case "rejection":
                refused = message.rejection
                _LOG.error("the collector rejected message %d: %s", refused.number, refused.reason)
                self._tally.rejected_messages += 1
                self._spool.set_aside(refused.session_id, refused.number, refused.reason)
            case "launch":
                # In a thread: it may start another process to list the workloads.
                reply = await asyncio.to_thread(self._launch, message.launch)
                self._reply(telemetry.AgentMessage(launch_reply=reply))
            case "cancel":
                self._orders.cancel(message.cancel.run_id)
            case "read_output":
                output = await asyncio.to_thread(self._read_output, message.read_output)
                self._reply(telemetry.AgentMessage(output=output))
            case "experiment" if self._orders.experiment:
                # In a thread: the checks before an experiment may take a while.
                answer = await asyncio.to_thread(self._orders.experiment, message.experiment)
                self._reply(telemetry.AgentMessage(experiment_reply=answer))
            case _:
                self._take_news(message)

    def _take_news(self, message: telemetry.CollectorMessage) -> None:
        """Act on what the collector says of clocks, paces and other machines."""
        match message.WhichOneof("message"):
            case "clock_reply":
                self._take_clock_reply(message.clock_reply)
            case "pace":
                self._set_pace(message.pace)
                self.trouble = message.pace.trouble
            case "same_identity":
                others = message.same_identity.hostnames
                text = f"node {self._spool.session.node_uuid}: {shared_identity(others)}" if others else None
                self._warnings.set("identity", text)

    def _set_pace(self, pace: telemetry.Welcome | telemetry.Pace) -> None:
        idle_millis = max(pace.flush_interval_millis, pace.idle_flush_interval_millis)
        self._orders.pace(pace.flush_interval_millis / 1000, idle_millis / 1000)

    def _hello(self) -> telemetry.Hello:
        sessions = [
            telemetry.SpooledSession(session_uuid=session.session_uuid, node_uuid=session.node_uuid)
            for session in self._spool.sessions()
        ]
        return telemetry.Hello(
            protocol_version=PROTOCOL_VERSION,
            agent_version=__version__,
            node_uuid=self._spool.session.node_uuid,
            sessions=sessions,
            allows_commands=self._orders.allows_commands,
            hostname=self._hostname,
            takes_experiments=self._orders.experiment is not None,
            boot_id=self._machine.boot_id or "",
            in_container=self._machine.in_container,
        )

    def _due(self) -> Iterator[telemetry.AgentMessage]:
        while self._replies:
            yield self._replies.popleft()
        free = _WINDOW_MESSAGES - len(self._in_flight)
        if not self.welcomed or free <= 0 or self._spool.last_position <= self._sent_position:
            return
        for message in self._spool.messages_after(self._sent_position, limit=free):
            self._wake.set()  # there may be more, and replies go first
            self._sent_position = message.position
            if len(message.records) > _MAX_RECORDS_BYTES:
                # No collector takes it, and all others would wait behind it.
                self._spool.set_aside(message.session_id, message.number, "larger than the largest message")
                continue
            self._in_flight.add((message.session_id, message.number))
            self._tally.sent_messages += 1
            batch = telemetry.Batch(session_id=message.session_id, number=message.number, records=message.records)
            yield telemetry.AgentMessage(batch=batch)

    def _reply(self, message: telemetry.AgentMessage) -> None:
        self._replies.append(message)
        self._wake.set()

    def _take_marks(self, marks: Iterable[telemetry.Mark]) -> None:
        numbers = {mark.session_id: mark.number for mark in marks}
        self._spool.acknowledge(numbers)
        waiting = {sent for sent in self._in_flight if sent[1] > numbers.get(sent[0], 0)}
        self._tally.acknowledged_messages += len(self._in_flight) - len(waiting)
        self._in_flight = waiting
        self._wake.set()

    def _launch(self, launch: telemetry.Launch) -> telemetry.LaunchReply:
        try:
            return telemetry.LaunchReply(launch_id=launch.launch_id, run_ids=self._orders.launch(launch.spec))
        except GpuAgentError as error:
            return telemetry.LaunchReply(launch_id=launch.launch_id, refusal=str(error))
        except Exception as error:  # noqa: BLE001
            # A request must not stop the agent.
            _LOG.exception("launch %s", launch.launch_id)
            return telemetry.LaunchReply(launch_id=launch.launch_id, refusal=f"{type(error).__name__}: {error}")

    def _read_output(self, request: telemetry.ReadOutput) -> telemetry.Output:
        offset_bytes = request.offset_bytes if request.HasField("offset_bytes") else None
        try:
            piece = self._orders.read_output(request.run_id, request.stream, offset_bytes)
        except GpuAgentError as error:
            return telemetry.Output(request_id=request.request_id, refusal=str(error))
        return telemetry.Output(
            request_id=request.request_id,
            text=piece.text,
            next_offset_bytes=piece.next_offset_bytes,
            at_end=piece.at_end,
        )

    def _estimate_offset(self) -> None:
        self._round_trips.clear()
        self._probe()
        self._next_estimate = self._loop.call_later(_PROBE_SECONDS, self._estimate_offset)

    def _probe(self) -> None:
        probe = telemetry.ClockProbe(agent_unix_nano=self._clock.now().unix_nano)
        self._reply(telemetry.AgentMessage(clock_probe=probe))

    def _take_clock_reply(self, reply: telemetry.ClockReply) -> None:
        now_nano = self._clock.now().unix_nano
        middle_nano = (reply.agent_unix_nano + now_nano) / 2
        round_trip_seconds = (now_nano - reply.agent_unix_nano) / 1e9
        self._round_trips.append(((reply.collector_unix_nano - middle_nano) / 1e9, round_trip_seconds))
        if len(self._round_trips) < _PROBES:
            self._probe()
            return
        offset_seconds = statistics.median(offset for offset, _ in self._round_trips)
        trip_seconds = statistics.median(trip for _, trip in self._round_trips)
        text = f"this node's clock is {describe_offset(offset_seconds)}, and so are all stored times; set the clock"
        # Nobody knows how long each way took, so the clocks may be closer by half of both.
        least_seconds = max(0.0, abs(offset_seconds) - trip_seconds / 2)
        self._warnings.set("clock", text if is_clock_wrong(least_seconds) else None)
        row = {"time": now_nano, "offset_seconds": offset_seconds, "round_trip_seconds": trip_seconds}
        self._buffer.add_samples("clock_offsets", [row])
