"""One connection to a collector: what is sent on it, and what comes back."""

import logging
import queue
import statistics
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from gpuagent import __version__
from gpuagent.clock import Clock
from gpuagent.errors import GpuAgentError
from gpuagent.rows import RecordBuffer
from gpuagent.spool import Message, Spool
from gpuagent_proto.connection import MAX_MESSAGE_BYTES
from gpuagent_proto.v1 import PROTOCOL_VERSION
from gpuagent_proto.v1 import run_pb2 as run
from gpuagent_proto.v1 import telemetry_pb2 as telemetry

_LOG = logging.getLogger(__name__)

_WINDOW_MESSAGES = 64
"""How many messages may be on their way without an acknowledgement: bounds memory on both sides."""

_MAX_RECORDS_BYTES = MAX_MESSAGE_BYTES - 1024
"""What leaves room for the rest of a message."""

_PROBES = 5
_PROBE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What a collector may ask of the agent."""

    launch: Callable[[run.RunSpec], list[str]]
    """Queue the runs and return their identities; raises GpuAgentError to refuse."""
    cancel: Callable[[str], None]
    pace: Callable[[float], None]
    """Flush at this interval from now on, in seconds."""
    allows_commands: bool


class Stream:
    """The agent's half of one TelemetryService.Connect call.

    gRPC draws `requests` in a thread of its own while the caller hands every response to `take`; `changed` wakes both
    when the spool or the stream has something new.
    """

    def __init__(
        self, *, spool: Spool, buffer: RecordBuffer, clock: Clock, orders: Orders, changed: threading.Condition
    ) -> None:
        self._spool = spool
        self._buffer = buffer
        self._clock = clock
        self._orders = orders
        self._changed = changed
        self._replies: queue.SimpleQueue[telemetry.AgentMessage] = queue.SimpleQueue()
        self._sent_position = 0
        self._in_flight: set[tuple[int, int]] = set()
        self._round_trips: list[tuple[float, float]] = []
        self._probe_due_nano = 0
        self._ended = False
        self.welcomed = False
        """Whether the collector took our hello."""
        self.acknowledged = False
        """Whether the collector stored anything of ours on this stream."""

    def end(self) -> None:
        """Let `requests` run out."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def requests(self) -> Iterator[telemetry.AgentMessage]:
        """Yield what is to be sent, until the stream ends."""
        yield telemetry.AgentMessage(hello=self._hello())
        with self._changed:
            self._changed.wait_for(lambda: self.welcomed or self._ended)
        while not self._ended:
            yield from self._due()
            with self._changed:
                if not (self._ended or not self._replies.empty() or self._has_sendable()):
                    self._changed.wait(timeout=_PROBE_SECONDS)

    def take(self, message: telemetry.CollectorMessage) -> None:
        """Act on what the collector sent."""
        match message.WhichOneof("message"):
            case "welcome":
                self._take_marks(message.welcome.marks)
                self._orders.pace(message.welcome.flush_interval_millis / 1000)
                self.welcomed = True
            case "ack":
                self._take_marks(message.ack.marks)
                self.acknowledged = True
            case "rejection":
                self._take_rejection(message.rejection)
            case "clock_reply":
                self._take_clock_reply(message.clock_reply)
            case "pace":
                self._orders.pace(message.pace.flush_interval_millis / 1000)
            case "launch":
                self._replies.put(telemetry.AgentMessage(launch_reply=self._launch(message.launch)))
            case "cancel":
                self._orders.cancel(message.cancel.run_id)
        with self._changed:
            self._changed.notify_all()

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
        )

    def _due(self) -> Iterator[telemetry.AgentMessage]:
        if self._clock.now().monotonic_nano >= self._probe_due_nano:
            self._probe_due_nano = self._clock.now().monotonic_nano + round(_PROBE_SECONDS * 1e9)
            self._round_trips.clear()
            yield self._probe()
        while not self._replies.empty():
            yield self._replies.get()
        for message in self._sendable(_WINDOW_MESSAGES):
            self._sent_position = message.position
            if len(message.records) > _MAX_RECORDS_BYTES:
                # No collector takes it, and behind it everything else would wait for ever.
                self._spool.set_aside(message.session_id, message.number, "it is larger than a message may be")
                continue
            with self._changed:
                self._in_flight.add((message.session_id, message.number))
            batch = telemetry.Batch(session_id=message.session_id, number=message.number, records=message.records)
            yield telemetry.AgentMessage(batch=batch)

    def _sendable(self, limit: int) -> list[Message]:
        free = min(limit, _WINDOW_MESSAGES - len(self._in_flight))
        return self._spool.messages_after(self._sent_position, limit=free) if free > 0 else []

    def _has_sendable(self) -> bool:
        return self._spool.last_position > self._sent_position and len(self._in_flight) < _WINDOW_MESSAGES

    def _take_marks(self, marks: Iterable[telemetry.Mark]) -> None:
        numbers = {mark.session_id: mark.number for mark in marks}
        self._spool.acknowledge(numbers)
        with self._changed:
            self._in_flight = {sent for sent in self._in_flight if sent[1] > numbers.get(sent[0], 0)}

    def _take_rejection(self, rejection: telemetry.Rejection) -> None:
        _LOG.error("the collector refused message %d: %s", rejection.number, rejection.reason)
        self._spool.set_aside(rejection.session_id, rejection.number, rejection.reason)

    def _launch(self, launch: telemetry.Launch) -> telemetry.LaunchReply:
        try:
            return telemetry.LaunchReply(launch_id=launch.launch_id, run_ids=self._orders.launch(launch.spec))
        except GpuAgentError as error:
            return telemetry.LaunchReply(launch_id=launch.launch_id, refusal=str(error))

    def _probe(self) -> telemetry.AgentMessage:
        return telemetry.AgentMessage(clock_probe=telemetry.ClockProbe(agent_unix_nano=self._clock.now().unix_nano))

    def _take_clock_reply(self, reply: telemetry.ClockReply) -> None:
        now_nano = self._clock.now().unix_nano
        middle_nano = (reply.agent_unix_nano + now_nano) / 2
        round_trip_seconds = (now_nano - reply.agent_unix_nano) / 1e9
        self._round_trips.append(((reply.collector_unix_nano - middle_nano) / 1e9, round_trip_seconds))
        if len(self._round_trips) < _PROBES:
            self._replies.put(self._probe())
            return
        row = {
            "time": now_nano,
            "offset_seconds": statistics.median(offset for offset, _ in self._round_trips),
            "round_trip_seconds": statistics.median(trip for _, trip in self._round_trips),
        }
        self._buffer.add_samples("clock_offsets", [row])
