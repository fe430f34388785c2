"""Exponential backoff: when to retry what failed."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Backoff:
    """Delays between retries: `first_seconds`, doubled after each failure up to `longest_seconds`.

    `jitter` shortens each delay by a random share of at most that size (0.5: to between half and all of it), so that
    many clients do not retry at once. The caller passes in the time, from any clock that never steps back.
    """

    first_seconds: float
    longest_seconds: float
    jitter: float = 0.0
    uniform: Callable[[float, float], float] = random.uniform
    # Failures since the last success.
    failures: int = 0
    _due_seconds: float = field(default=0.0, init=False)

    def next_delay_seconds(self) -> float:
        """Count a failure and return the delay before the next attempt."""
        # 2 ** 64 times the first delay exceeds any limit; a larger exponent overflows a float in the end.
        delay_seconds = min(self.first_seconds * 2.0 ** min(self.failures, 64), self.longest_seconds)
        self.failures += 1
        return delay_seconds * self.uniform(1 - self.jitter, 1.0) if self.jitter else delay_seconds

    def note_failure(self, now_seconds: float) -> None:
        """Put the next attempt off."""
        self._due_seconds = now_seconds + self.next_delay_seconds()

    def is_due(self, now_seconds: float) -> bool:
        """Return whether the next attempt may be made; always true where nothing has failed."""
        return not self.failures or now_seconds >= self._due_seconds

    def reset(self) -> None:
        """Note a success: the next failure is followed by the shortest delay again."""
        self.failures = 0
