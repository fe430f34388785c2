"""How much one node may ask of the collector, whatever its agents send: beyond it, they are read from more slowly."""

import asyncio
import time
from collections.abc import Callable

# Twenty times what an agent sends that catches up with a backlog; messages are of a second's samples each.
MESSAGES_PER_SECOND = 1000.0

BURST_MESSAGES = 1000.0

# Of one node, waiting for their commit; agents of ours have 64 on the way at most.
MAX_IN_FLIGHT_MESSAGES = 256

# A quarter of the writer's queue: the rest is left to others, whatever one node sends.
MAX_IN_FLIGHT_BYTES = 16 * 1024 * 1024


class Throttle:
    """A token bucket: messages at a rate, with a burst."""

    def __init__(
        self,
        rate: float = MESSAGES_PER_SECOND,
        burst: float = BURST_MESSAGES,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._monotonic = monotonic
        self._left = burst
        self._at = monotonic()

    def delay_seconds(self) -> float:
        """Count one message; return how long to wait before the next one is read."""
        now = self._monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate) - 1
        self._at = now
        return max(0.0, -self._left / self._rate)


class Share:
    """What the streams of one node have of the writer's queue together. It belongs to one event loop.

    Streams take turns: who asked first goes first, whatever the size of its message.
    """

    def __init__(self, *, max_messages: int = MAX_IN_FLIGHT_MESSAGES, max_bytes: int = MAX_IN_FLIGHT_BYTES) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()
        # In flight.
        self.messages = 0
        # Of their records.
        self.size_bytes = 0
        self.throttle = Throttle()

    async def take(self, size_bytes: int) -> None:
        """Wait until a message fits, and count it; a message that is too large for the share fits when it is alone."""
        async with self._turn:
            while not self._fits(size_bytes):
                self._freed.clear()
                await self._freed.wait()
            self.messages += 1
            self.size_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Say that a message is in flight no more."""
        self.messages -= 1
        self.size_bytes -= size_bytes
        self._freed.set()

    def _fits(self, size_bytes: int) -> bool:
        fits = self.messages < self._max_messages and self.size_bytes + size_bytes <= self._max_bytes
        return fits or self.messages == 0
