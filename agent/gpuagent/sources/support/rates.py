"""Rates from counters that only rise."""

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from gpuagent.clock import Instant

K = TypeVar("K", bound=Hashable)


def increase(before: float | None, after: float | None) -> float | None:
    """Return by how much a counter rose; None where it is not known, or it fell: then it was reset between."""
    if before is None or after is None or after < before:
        return None
    return after - before


class Rates(Generic[K]):
    """Turns counters into rates: what they rose by between two readings, by the time between them."""

    def __init__(self) -> None:
        self._counters: Mapping[K, float | None] = {}
        self._monotonic_nano = 0

    def per_second(self, counters: Mapping[K, float | None], now: Instant) -> dict[K, float | None]:
        """Return the rate of each counter that the reading before had too; None where `increase` knows none."""
        before, self._counters = self._counters, dict(counters)
        seconds = (now.monotonic_nano - self._monotonic_nano) / 1e9
        self._monotonic_nano = now.monotonic_nano
        if seconds <= 0:
            return {}
        return {name: _divided(increase(before[name], counters[name]), seconds) for name in counters if name in before}


def _divided(amount: float | None, seconds: float) -> float | None:
    return None if amount is None else amount / seconds


def total(rates: Mapping[K, float | None]) -> float | None:
    """Return the sum, or None where there is nothing to add or a part is missing."""
    known = [rate for rate in rates.values() if rate is not None]
    return sum(known) if known and len(known) == len(rates) else None
