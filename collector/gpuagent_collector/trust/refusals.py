"""How many refusals are written down: who is refused a million times fills no disk, and is counted."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

WINDOW_SECONDS = 60.0

# Of the holder of one token, or of all who have none together: an attacker has any number of addresses.
MAX_IN_WINDOW = 20


@dataclass(slots=True, kw_only=True)
class _Window:
    began: float
    refused: int = 0


class Refusals:
    """Counts them by who was refused (None: all who have no token). Any thread may use it."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        # No more than there are tokens.
        self._windows: dict[str | None, _Window] = {}

    def is_to_be_written(self, who: str | None) -> bool:
        """Count one; return whether it is among the first of its window."""
        with self._lock:
            window = self._windows.setdefault(who, _Window(began=self._monotonic()))
            window.refused += 1
            return window.refused <= MAX_IN_WINDOW

    def left_out(self, *, at_end: bool = False) -> Sequence[tuple[str | None, int]]:
        """Return of each window that is over, or `at_end` of all, how many were not to be written, and begin anew."""
        with self._lock:
            now = self._monotonic()
            over = [who for who, window in self._windows.items() if at_end or now - window.began >= WINDOW_SECONDS]
            counts = [(who, self._windows.pop(who).refused - MAX_IN_WINDOW) for who in over]
        return [(who, count) for who, count in counts if count > 0]
