"""When to try again what failed."""

from gpuagent.clock import Instant
from gpuagent.sources.support.gpus import FIRST_RETRY_NANO, LAST_RETRY_NANO


class Backoff:
    """Tries again after 1 s, 2 s, … up to a minute, as lost GPUs are."""

    def __init__(self) -> None:
        self._retry_nano = 0
        self._delay_nano = FIRST_RETRY_NANO

    def is_due(self, now: Instant) -> bool:
        """Tell whether it is time to try."""
        return now.monotonic_nano >= self._retry_nano

    def note_failure(self, now: Instant) -> None:
        """Wait, longer than the last time."""
        self._retry_nano = now.monotonic_nano + self._delay_nano
        self._delay_nano = min(2 * self._delay_nano, LAST_RETRY_NANO)

    def note_success(self) -> None:
        """Begin anew at the shortest wait."""
        self._retry_nano, self._delay_nano = 0, FIRST_RETRY_NANO
