"""Flow control: agents are slowed before anything has to wait for long."""

import time
from collections.abc import Callable

# Beyond this a live view of the node would be worth little.
LONGEST_FLUSH_MILLIS = 10_000

# A message that waits so long for its commit is as bad as a full queue: short messages cost time and few bytes.
MAX_LAG_SECONDS = 8.0

# Share of either that is reached, and by how much longer agents are to collect before they send.
_STEPS = ((0.75, 10), (0.5, 5), (0.25, 2))

# Agents are hurried again when less would have done for so long. The queue is empty after each commit: without this a
# thousand agents that were a little too many were told twelve times a minute, each of them.
PATIENCE_SECONDS = 30.0


class Pace:
    """How often agents are to flush. Fewer and longer messages cost the collector less for the same rows."""

    def __init__(self, *, base_millis: int, limit_bytes: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Take how often agents flush while nothing waits, and how long the queue may be."""
        self._base_millis = base_millis
        self._limit_bytes = limit_bytes
        self._monotonic = monotonic
        self._needed_seconds = monotonic()
        # What agents were told last.
        self.told_millis = base_millis

    def change(self, queued_bytes: int, lag_seconds: float) -> int | None:
        """Return what agents are to be told while so much waits, and waited so long; None: nothing new."""
        fullness = max(queued_bytes / self._limit_bytes, lag_seconds / MAX_LAG_SECONDS)
        millis = flush_interval_millis(fullness, self._base_millis)
        if millis >= self.told_millis:
            self._needed_seconds = self._monotonic()
        if millis == self.told_millis or self._is_too_soon(millis):
            return None
        self.told_millis = millis
        return millis

    def _is_too_soon(self, millis: int) -> bool:
        return millis < self.told_millis and self._monotonic() < self._needed_seconds + PATIENCE_SECONDS


def flush_interval_millis(fullness: float, base_millis: int) -> int:
    """Return how often agents are to flush; with a fullness of 1 no more is taken."""
    factor = next((factor for share, factor in _STEPS if fullness >= share), 1)
    return max(base_millis, min(base_millis * factor, LONGEST_FLUSH_MILLIS))
