"""Thins samples out between commits, so little at a time that no agent waits for it."""

import logging
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import duckdb

from gpuagent_collector.store.retention import Retention, Slice, retain
from gpuagent_collector.store.sampled import believed

_LOG = logging.getLogger(__name__)

# Of the writer's time, while there is something to do.
_SHARE = 0.2


class Retaining:
    """Does what a retention asks for, a slice at a time. It belongs to the thread that writes the store."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        retention: Retention,
        *,
        sorted_by_node: bool,
        every: timedelta,
        now: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take whether the store is sorted by node, and how often to look for what has become old."""
        self._connection = connection
        self._retention = retention
        self._sorted_by_node = sorted_by_node
        self._every = every
        self._now = now
        self._monotonic = monotonic
        self._under_way: Iterator[Slice] | None = None
        self._next = monotonic()

    def tick(self) -> None:
        """Do a slice when it is time. Nothing can be lost here, so a failure is logged and tried again."""
        started = self._monotonic()
        if not self._retention or started < self._next:
            return
        done = self._step()
        ended = self._monotonic()
        if done is None:
            self._under_way = None
            self._next = ended + self._every.total_seconds()
        else:
            self._next = ended + (ended - started) * (1 / _SHARE - 1)

    def _step(self) -> Slice | None:
        try:
            self._under_way = self._under_way or self._begin()
            return next(self._under_way, None)
        except duckdb.Error as error:
            _LOG.warning("cannot thin samples out; it is tried again: %s", error)
            return None

    def _begin(self) -> Iterator[Slice]:
        now = believed(self._connection, self._now())
        return retain(self._connection, self._retention, now, sorted_by_node=self._sorted_by_node)
