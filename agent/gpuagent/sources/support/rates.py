"""Rates from counters that only rise."""

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from gpuagent.clock import Instant

K = TypeVar("K", bound=Hashable)


def increase(before: float | None, after: float | None) -> float | None:
    """Return the rise of a counter; None where it is unknown, or the counter fell: then it was reset between."""
    if before is None or after is None or after < before:
        return None
    return after - before


class Rates(Generic[K]):
    """Rates of counters: their rise between two readings, divided by the time between them."""

    def __init__(self) -> None:
        self._counters: Mapping[K, float | None] = {}
        self._monotonic_nano = 0

    def per_second(self, counters: Mapping[K, float | None], now: Instant) -> dict[K, float | None]:
        """Return the rate of each counter that the reading before had too; None where its rise is unknown."""
        before, self._counters = self._counters, dict(counters)
        seconds = (now.monotonic_nano - self._monotonic_nano) / 1e9
        self._monotonic_nano = now.monotonic_nano
        if seconds <= 0:
            return {}
        risen = {name: increase(before[name], count) for name, count in counters.items() if name in before}
        return {name: None if amount is None else amount / seconds for name, amount in risen.items()}


def total(rates: Mapping[K, float | None]) -> float | None:
    """Return the sum, or None where there is nothing to add or a part is missing."""
    known = [rate for rate in rates.values() if rate is not None]
    return sum(known) if known and len(known) == len(rates) else None
