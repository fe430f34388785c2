"""A clock for tests that need not wait."""

from gpuagent.clock import Instant

SECOND = 1_000_000_000


class SteppedClock:
    """A clock that moves only in steps."""

    monotonic_nano = 5 * SECOND
    unix_nano = 1_000 * SECOND

    def now(self) -> Instant:
        return Instant(unix_nano=self.unix_nano, monotonic_nano=self.monotonic_nano)

    def move(self, seconds: float) -> None:
        self.monotonic_nano += round(seconds * SECOND)
        self.unix_nano += round(seconds * SECOND)
