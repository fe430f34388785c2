"""An answer that is kept for a moment, so that many requests cost as much as one."""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Cached(Generic[Value]):
    """A value that a function returns, renewed at most once a period; concurrent callers wait for one call."""

    def __init__(
        self, make: Callable[[], Value], *, keep_seconds: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Take the function, and the time for which its value is valid; exceptions are not kept."""
        self._make = make
        self._keep_seconds = keep_seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._made: tuple[float, Value] | None = None

    def get(self) -> Value:
        """Return the value, renewed when it is too old; raise what the function raises."""
        with self._lock:
            if self._made is None or self._monotonic() - self._made[0] >= self._keep_seconds:
                value = self._make()
                self._made = self._monotonic(), value
            return self._made[1]
