"""The pipeline that moves rows from memory into the spool, once a flush interval.

A message costs the node as much as the samples of half a second. So an idle node sends fewer, unless somebody watches.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from gpuagent.clock import Clock
from gpuagent.delivery.spool import Entry, Spool, gap_entry
from gpuagent.delivery.spool_file import SpoolError
from gpuagent.runs.events import Tailed
from gpuagent.sampling.rows import LatestGpus, RecordBuffer, Tables, encode_records, split_rows

_LOG = logging.getLogger(__name__)

# Limit of what is held in memory while the spool cannot be written.
_HELD_BYTES = 8 * 1024 * 1024

# More rows are split into several messages, so that none exceeds the collector's limit.
_ROWS_A_MESSAGE = 5_000

# The shortest and the longest flush interval that a collector can ask for.
_INTERVAL_SECONDS = (0.1, 60.0)


class Pipeline:
    """A mover of rows from the buffer into the spool.

    `tail` adds the events of runs to the buffer and returns how far it has read. `is_busy` returns whether the node has
    a run; else the longer interval applies, `idle_seconds`.
    """

    def __init__(
        self,
        *,
        buffer: RecordBuffer,
        spool: Spool,
        clock: Clock,
        tail: Callable[[], Tailed],
        on_spooled: Callable[[], None],
        latest: LatestGpus | None = None,
        is_busy: Callable[[], bool] = lambda: True,
        interval_seconds: float,
        idle_seconds: float = 0.0,
    ) -> None:
        self._buffer = buffer
        self._spool = spool
        self._clock = clock
        self._tail = tail
        self._on_spooled = on_spooled
        self._latest = latest or LatestGpus()
        self._is_busy = is_busy
        self._interval_seconds, self._idle_seconds = interval_seconds, idle_seconds
        self._next_idle_flush_nano = 0
        self._flushed_unix_nano = clock.now().unix_nano
        self._lock = threading.Lock()
        self._held: deque[Entry] = deque()
        self._tailed = Tailed()
        self._failure: str | None = None
        # Flushes that have ended, failed ones and those that an idle node put off included.
        self.flushes = 0

    def run(self, stop: threading.Event) -> None:
        """Flush until `stop` is set, and then once more."""
        while not stop.wait(self._interval_seconds):
            self.flush_if_due()
            self.flushes += 1
        self.flush(is_last=True)

    def flush_if_due(self) -> None:
        """Flush, unless the node is idle and its longer interval is not over. Called once every shorter interval."""
        if self._is_busy() or self._clock.now().monotonic_nano >= self._next_idle_flush_nano:
            self.flush()

    def set_intervals(self, seconds: float, idle_seconds: float) -> None:
        """Change the intervals, of a node with a run and of another: the collector's flow control."""
        shortest, longest = _INTERVAL_SECONDS
        self._interval_seconds = min(max(seconds, shortest), longest)
        self._idle_seconds = min(max(idle_seconds, shortest), longest)
        # An idle node's rows wait no longer than before: somebody may have begun to watch.
        self._next_idle_flush_nano = 0

    @property
    def held(self) -> int:
        """Number of messages that are in memory only, because the spool could not be written."""
        with self._lock:
            return len(self._held)

    def flush(self, *, is_last: bool = False) -> None:
        """Spool all collected rows; hold them for the next flush if the spool cannot be written."""
        with self._lock:
            tailed = self._tail()
            self._tailed = Tailed(
                opened={**self._tailed.opened, **tailed.opened},
                offsets={**self._tailed.offsets, **tailed.offsets},
                closed=self._tailed.closed + tailed.closed,
            )
            start, end = self._flushed_unix_nano, self._clock.now().unix_nano
            samples, records = self._buffer.drain(is_last=is_last)
            for table, rows in samples.items():
                self._latest.take(table, rows)
            self._flushed_unix_nano = end
            # Half an interval less, because the turns do not come at exact times.
            pause_seconds = self._idle_seconds - self._interval_seconds / 2
            self._next_idle_flush_nano = self._clock.now().monotonic_nano + round(pause_seconds * 1e9)
            # Samples go first: once the collector has the end of a run, it has the run's last samples.
            for tables, droppable in ((samples, True), (records, False)):
                for part in split_rows(tables, _ROWS_A_MESSAGE):
                    self._held.append(
                        Entry(records=_encode(part), droppable=droppable, from_unix_nano=start, to_unix_nano=end)
                    )
            if not self._held and self._tailed == Tailed():
                return
            try:
                self._spool.append(
                    tuple(self._held),
                    opened=self._tailed.opened,
                    offsets=self._tailed.offsets,
                    closed=self._tailed.closed,
                )
            except SpoolError as error:
                # One line when it begins, not one a second.
                if not self._failure:
                    _LOG.error("%s; rows are held in memory", error)
                self._failure = str(error)
                self._bound_held()
                return
            if self._failure:
                _LOG.error("the spool can be written again")
            self._failure = None
            self._held.clear()
            self._tailed = Tailed()
        self._on_spooled()

    def _bound_held(self) -> None:
        """Drop the oldest held samples, and hold a gap in their place."""
        while sum(len(entry.records) for entry in self._held) > _HELD_BYTES:
            victims = [entry for entry in self._held if entry.droppable]
            if len(victims) < 2:
                return
            dropped = victims[: len(victims) // 2]
            gap = gap_entry(
                dropped[0].from_unix_nano,
                dropped[-1].to_unix_nano,
                "spool_full",
                messages=len(dropped),
                detail="the spool could not be written",
            )
            self._held = deque([gap, *(entry for entry in self._held if entry not in dropped)])


def _encode(tables: Tables) -> bytes:
    """Encode `tables`; leave out and log each that cannot be encoded."""
    with suppress(ValueError):
        return encode_records(tables)
    records = b""
    for name, rows in tables.items():
        try:
            records += encode_records({name: rows})  # protobuf joins serialised messages by concatenation
        except ValueError as error:
            _LOG.error("rows were left out: %s", error)
    return records
