"""GPM, the performance counters of Hopper and newer: figures are what changed between two samples of a GPU."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

SampleT = TypeVar("SampleT")

MIN_SPAN_NANO = 100_000_000
"""Hopper's counters need so long between two samples; nearer ones make figures that are wrong."""

_SLOTS = 4

_MIN_GAP_NANO = MIN_SPAN_NANO // (_SLOTS - 1) + 1
"""Samples that lie closer together are not kept, so that the oldest kept one is always old enough."""


@dataclass(slots=True)
class _Slot(Generic[SampleT]):
    sample: SampleT
    taken_nano: int | None = None


class SampleRing(Generic[SampleT]):
    """The last few samples of one GPU: wherever a poll falls, there is one that is old enough, and not much older."""

    def __init__(self, allocate: Callable[[], SampleT]) -> None:
        self._slots = [_Slot(allocate()) for _ in range(_SLOTS)]
        self._newest_nano: int | None = None

    def take(self, fill: Callable[[SampleT], object], now_nano: int) -> tuple[SampleT, SampleT] | None:
        """Fill a sample, and return it behind the latest that is old enough; None: there is none yet.

        Args:
            fill: writes the GPU's counters into a sample; what it raises is passed on.
            now_nano: a monotonic clock.
        """
        if self._newest_nano is not None and now_nano - self._newest_nano < _MIN_GAP_NANO:
            return None
        slot = min(self._slots, key=lambda slot: -1 if slot.taken_nano is None else slot.taken_nano)
        slot.taken_nano = None
        fill(slot.sample)
        older = [
            old for old in self._slots if old.taken_nano is not None and now_nano - old.taken_nano >= MIN_SPAN_NANO
        ]
        slot.taken_nano = self._newest_nano = now_nano
        if not older:
            return None
        return max(older, key=lambda old: old.taken_nano or 0).sample, slot.sample

    def release(self, free: Callable[[SampleT], object]) -> None:
        """Give the samples back; the ring is of no use after that."""
        for slot in self._slots:
            free(slot.sample)
        self._slots.clear()
