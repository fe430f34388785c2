"""Flow control: the share of one node, and the pace of all agents.

Beyond its share a node is read more slowly. All agents are slowed before any message waits for long.
"""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

# Twenty times the rate of an agent that delivers a backlog; a message holds a second's samples.
MESSAGES_PER_SECOND = 1000.0

BURST_MESSAGES = 1000.0

# Of one node before their commit; a genuine agent has at most 64.
MAX_IN_FLIGHT_MESSAGES = 256

# An eighth of the writer's queue, so that one node cannot fill it.
MAX_IN_FLIGHT_BYTES = 16 * 1024 * 1024

# A live view of a node is worth little beyond this.
LONGEST_FLUSH_MILLIS = 10_000

# A message that waits this long for its commit is as bad as a full queue: short messages cost time and few bytes.
MAX_LAG_SECONDS = 8.0

# Share of the queue's limit or of the longest lag → factor by which agents collect longer before they send.
_STEPS = ((0.75, 10), (0.5, 5), (0.25, 2))

# Agents of nodes without a run flush this much less often while nobody asks.
IDLE_FACTOR = 5

# Somebody watches until this long after the last question; `collector watch` asks every 2 s by default.
WATCHED_SECONDS = 30.0

# Agents are sped up again after this long below a step. The queue is empty after each commit: without this, a slightly
# overloaded collector changed the pace of a thousand agents twelve times a minute.
PATIENCE_SECONDS = 30.0


@dataclass
class Throttle:
    """A token bucket: messages at a rate, with a burst."""

    rate: float = MESSAGES_PER_SECOND
    burst: float = BURST_MESSAGES
    monotonic: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._left = self.burst
        self._at = self.monotonic()

    def delay_seconds(self) -> float:
        """Count one message; return the pause before the next one is read."""
        now = self.monotonic()
        self._left = min(self.burst, self._left + (now - self._at) * self.rate) - 1
        self._at = now
        return max(0.0, -self._left / self.rate)


@dataclass(kw_only=True, eq=False)
class Share:
    """The share of the writer's queue for all streams of one node. It belongs to one event loop.

    Streams take turns: the first to ask goes first, whatever the size of its message.
    """

    max_messages: int = MAX_IN_FLIGHT_MESSAGES
    max_bytes: int = MAX_IN_FLIGHT_BYTES
    # In flight, and the size of their records.
    messages: int = 0
    size_bytes: int = 0
    throttle: Throttle = field(default_factory=Throttle)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _freed: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, size_bytes: int) -> None:
        """Wait until a message fits, and count it; a message larger than the share fits when it is alone."""
        async with self._turn:
            while self.messages and (
                self.messages >= self.max_messages or self.size_bytes + size_bytes > self.max_bytes
            ):
                self._freed.clear()
                await self._freed.wait()
            self.messages += 1
            self.size_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Release a message that is no longer in flight."""
        self.messages -= 1
        self.size_bytes -= size_bytes
        self._freed.set()


@dataclass(kw_only=True)
class Pace:
    """The flush intervals of agents. Fewer and longer messages cost both sides less for the same rows."""

    # Of an idle collector.
    base_millis: int
    # Of the queue.
    limit_bytes: int
    monotonic: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._needed_seconds = self.monotonic()
        self._asked_seconds = -math.inf
        # The last intervals sent to agents: of nodes with a run, and of others.
        self.current_millis = self.base_millis
        self.idle_millis = self._find_idle_millis()

    def note_question(self) -> None:
        """Record that somebody watches."""
        self._asked_seconds = self.monotonic()

    def change(self, queued_bytes: int, lag_seconds: float) -> bool:
        """Choose the intervals for this length of the queue and this lag; return whether they have changed."""
        before = (self.current_millis, self.idle_millis)
        self.current_millis = self._find_millis(queued_bytes, lag_seconds)
        self.idle_millis = self._find_idle_millis()
        return (self.current_millis, self.idle_millis) != before

    def _find_idle_millis(self) -> int:
        is_watched = self.monotonic() < self._asked_seconds + WATCHED_SECONDS
        return max(self.current_millis, self.base_millis * (1 if is_watched else IDLE_FACTOR))

    def _find_millis(self, queued_bytes: int, lag_seconds: float) -> int:
        fullness = max(queued_bytes / self.limit_bytes, lag_seconds / MAX_LAG_SECONDS)
        millis = flush_interval_millis(fullness, self.base_millis)
        if millis >= self.current_millis:
            self._needed_seconds = self.monotonic()
        elif self.monotonic() < self._needed_seconds + PATIENCE_SECONDS:
            return self.current_millis
        return millis


def flush_interval_millis(fullness: float, base_millis: int) -> int:
    """Return the flush interval for a fullness from 0 to 1, where no more is taken."""
    factor = next((factor for share, factor in _STEPS if fullness >= share), 1)
    return max(base_millis, min(base_millis * factor, LONGEST_FLUSH_MILLIS))
