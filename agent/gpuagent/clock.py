"""The time, passed in so that tests need not wait."""

import time
from typing import NamedTuple, Protocol


class Instant(NamedTuple):  # made in a quarter of a frozen dataclass's time, several times a tick
    """One moment on both clocks: `unix_nano` can be compared between nodes, `monotonic_nano` never steps."""

    unix_nano: int
    monotonic_nano: int

    @property
    def monotonic_seconds(self) -> float:
        """Return the monotonic time in seconds."""
        return self.monotonic_nano / 1e9


class Clock(Protocol):
    """A source of the current time."""

    def now(self) -> Instant:
        """Return this moment on both clocks."""
        ...


class SystemClock:
    """The node's clocks."""

    def now(self) -> Instant:
        """Return this moment on both clocks."""
        return Instant(time.time_ns(), time.monotonic_ns())
