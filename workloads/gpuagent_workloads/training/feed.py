"""Hands batches to training steps, and knows how long they waited for them."""

import time
from collections.abc import Iterator
from typing import Generic, TypeVar

BatchT = TypeVar("BatchT")


class Feed(Generic[BatchT], Iterator[BatchT]):
    """Iterates over batches and adds up the time that the host spends on getting them.

    That is all time between asking for a batch and having it: picking and decoding it where that is not done ahead, and
    handing its copy to the GPU, but not the copy itself.
    """

    def __init__(self, batches: Iterator[BatchT]) -> None:
        self.waited_seconds = 0.0
        self._batches = batches

    def __next__(self) -> BatchT:
        asked_nano = time.perf_counter_ns()
        batch = next(self._batches)
        self.waited_seconds += (time.perf_counter_ns() - asked_nano) / 1e9
        return batch
