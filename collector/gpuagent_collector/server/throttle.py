"""How much one agent may ask of the collector, whatever it sends: beyond it, it is read from more slowly."""

import time
from collections.abc import Callable

MESSAGES_PER_SECOND = 1000.0
"""Twenty times what an agent sends that catches up with a backlog; messages are of a second's samples each."""

BURST_MESSAGES = 1000.0

MAX_IN_FLIGHT_MESSAGES = 256
"""Of one agent, waiting for their commit; agents of ours have 64 on the way at most."""

MAX_IN_FLIGHT_BYTES = 16 * 1024 * 1024
"""A quarter of the writer's queue: the rest is left to others, whatever one of them sends."""


class Throttle:
    """A token bucket: messages at a rate, with a burst. It belongs to one stream."""

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
