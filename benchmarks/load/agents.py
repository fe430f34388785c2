"""One simulated agent: the agent's own uplink and stream, on a spool that is kept in memory.

Only what would need a node of its own is left out: sources, and a disk to be synchronised for each message.
"""

import asyncio
import time
from array import array
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from benchmarks.load.messages import DrawnValues, description
from benchmarks.load.plan import SimulatedNode
from gpuagent.clock import SystemClock
from gpuagent.delivery.spool import Message, Session, Spool
from gpuagent.delivery.stream import Orders
from gpuagent.delivery.uplink import Access, Uplink
from gpuagent.runs.output import Piece
from gpuagent.sampling.rows import RecordBuffer
from gpuagent_common.connection import TlsFiles
from gpuagent_common.keys import key
from gpuagent_proto.v1.run_pb2 import RunSpec


@dataclass(slots=True, kw_only=True)
class Tally:
    """The fate of one agent's messages; times are of the monotonic clock, which all processes share."""

    # All samples before this tick are acknowledged.
    acknowledged_ticks: int = 0
    rejections: list[str] = field(default_factory=list)
    # When each message was sent that was acknowledged; of one that was sent again, the last time.
    sent_at_seconds: "array[float]" = field(default_factory=lambda: array("d"))
    # From there to its acknowledgement.
    latency_seconds: "array[float]" = field(default_factory=lambda: array("d"))
    # Its number of rows.
    rows: "array[int]" = field(default_factory=lambda: array("q"))
    # Time and value, in seconds, of each new flush interval.
    paces: list[tuple[float, float]] = field(default_factory=list)


class MemorySpool:
    """A spool of ticks that makes their rows on sending, so that it cannot be full."""

    def __init__(self, node: SimulatedNode, drawn: DrawnValues, tally: Tally) -> None:
        self.session = Session(
            session_id=key(node.session_uuid), session_uuid=node.session_uuid, node_uuid=node.node_uuid
        )
        # A position is the message's number; the first describes the node.
        self.last_position = 1
        self._node = node
        self._drawn = drawn
        self._tally = tally
        self._waiting: deque[tuple[int, range]] = deque([(1, range(0))])
        self._sent_at_seconds: dict[int, float] = {}

    def append(self, ticks: range) -> None:
        """Keep one message more."""
        self.last_position += 1
        self._waiting.append((self.last_position, ticks))

    def sessions(self) -> list[Session]:
        """Return the agent's own session: nothing is left of an earlier one."""
        return [self.session]

    def waiting(self) -> int:
        """Return the number of unacknowledged messages."""
        return len(self._waiting)

    def messages_after(self, position: int, *, limit: int) -> list[Message]:
        """Return messages that are to be sent now."""
        first = self._waiting[0][0] if self._waiting else 0
        skipped = max(0, position + 1 - first)
        due = [self._waiting[place] for place in range(skipped, min(skipped + limit, len(self._waiting)))]
        now_seconds = time.monotonic()
        self._sent_at_seconds |= dict.fromkeys((number for number, _ in due), now_seconds)
        session_id = self.session.session_id
        return [
            Message(position=number, session_id=session_id, number=number, records=self._records(number, ticks))
            for number, ticks in due
        ]

    def _records(self, number: int, ticks: range) -> bytes:
        return self._drawn.records(self._node, number, ticks) if ticks else description(self._node)

    def acknowledge(self, marks: Mapping[int, int]) -> None:
        """Drop committed messages, and record their delays."""
        mark, now_seconds = marks.get(self.session.session_id, 0), time.monotonic()
        while self._waiting and self._waiting[0][0] <= mark:
            number, ticks = self._waiting.popleft()
            self._tally.acknowledged_ticks = ticks.stop
            sent_at_seconds = self._sent_at_seconds.pop(number)
            self._tally.sent_at_seconds.append(sent_at_seconds)
            self._tally.latency_seconds.append(now_seconds - sent_at_seconds)
            self._tally.rows.append(len(ticks) * (1 + self._node.gpus))

    def set_aside(self, _session_id: int, number: int, reason: str) -> None:
        """Record a rejected message."""
        self._tally.rejections.append(f"message {number}: {reason}")


class SimulatedAgent:
    """An agent that makes samples at a rate, and delivers them every `flush_seconds` or less often, as it is asked."""

    def __init__(self, node: SimulatedNode, access: "NodeAccess", drawn: DrawnValues, *, flush_seconds: float) -> None:
        self.node = node
        self.tally = Tally()
        self._spool = MemorySpool(node, drawn, self.tally)
        self._flush_seconds = self._interval_seconds = flush_seconds
        self._uplink = Uplink(
            access=Access(address=access.address, token_file=access.token_file, tls=access.tls),
            spool=cast("Spool", self._spool),  # it has what an uplink asks of one
            buffer=RecordBuffer(),  # what is measured of the clocks is left there
            clock=SystemClock(),
            orders=self._orders(),
            hostname=node.hostname,
        )

    @property
    def connected(self) -> bool:
        """True once the collector has welcomed it."""
        return self._uplink.connected

    @property
    def waiting(self) -> int:
        """The number of unacknowledged messages."""
        return self._spool.waiting()

    async def deliver(self) -> None:
        """Keep a connection, until cancelled."""
        await self._uplink.run()

    async def sample(self, begins_seconds: float, ends: asyncio.Event) -> None:
        """Append a message a flush interval from `begins_seconds` (monotonic) on; what was missed follows at once."""
        made, due_seconds = 0, begins_seconds
        while not ends.is_set():
            due_seconds += self._interval_seconds
            await asyncio.sleep(max(0.0, due_seconds - time.monotonic()))
            upto = int((due_seconds - begins_seconds) * 1e6) // self.node.period_micros
            if upto > made:
                self._spool.append(range(made, upto))
                made = upto
                self._uplink.notify()

    def _orders(self) -> Orders:
        def refuse(_spec: RunSpec) -> list[str]:
            return []

        return Orders(
            launch=refuse,
            cancel=lambda _run_id: None,
            read_output=lambda *_: Piece(text="", next_offset_bytes=0, at_end=True),
            pace=self._pace,
            allows_commands=False,
        )

    def _pace(self, busy_seconds: float, _idle_seconds: float) -> None:
        seconds = max(busy_seconds, self._flush_seconds)
        if seconds != self._interval_seconds:
            self._interval_seconds = seconds
            self.tally.paces.append((time.monotonic(), seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAccess:
    """The address and credentials of an agent's collector."""

    address: str
    token_file: Path
    tls: TlsFiles
