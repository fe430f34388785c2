"""Moves rows from memory into the spool, once a flush interval."""

import logging
import threading
from collections import deque
from collections.abc import Callable

from gpuagent.clock import Clock
from gpuagent.delivery.spool import Entry, Spool, gap_entry
from gpuagent.delivery.spool_file import SpoolError
from gpuagent.runs.tails import Tailed
from gpuagent.sampling.rows import RecordBuffer, Tables, encode_records, split_rows

_LOG = logging.getLogger(__name__)

# How much is held in memory while the spool's disk takes nothing.
_HELD_BYTES = 8 * 1024 * 1024

# More rows than this become several messages, so that none exceeds what a collector takes.
_ROWS_A_MESSAGE = 5_000

# The shortest and the longest flush interval that a collector can ask for.
_INTERVAL_SECONDS = (0.1, 60.0)


class Pipeline:
    """Drains the buffer into the spool. `tail` adds what runs reported to the buffer and says how far it read."""

    def __init__(
        self,
        *,
        buffer: RecordBuffer,
        spool: Spool,
        clock: Clock,
        tail: Callable[[], Tailed],
        on_spooled: Callable[[], None],
        interval_seconds: float,
    ) -> None:
        self._buffer = buffer
        self._spool = spool
        self._clock = clock
        self._tail = tail
        self._on_spooled = on_spooled
        self._interval_seconds = interval_seconds
        self._flushed_unix_nano = clock.now().unix_nano
        self._lock = threading.Lock()
        self._held: deque[Entry] = deque()
        self._tailed = Tailed()
        self._failure: str | None = None
        # How many flushes have ended, well or not.
        self.flushes = 0

    def run(self, stop: threading.Event) -> None:
        """Flush until `stop` is set, and once more then."""
        while not stop.wait(self._interval_seconds):
            self.flush()
            self.flushes += 1
        self.flush()

    def set_interval(self, seconds: float) -> None:
        """Flush at another interval from the next flush on: the collector's flow control."""
        self._interval_seconds = min(max(seconds, _INTERVAL_SECONDS[0]), _INTERVAL_SECONDS[1])

    @property
    def held(self) -> int:
        """How many messages are in memory only, because the spool's disk did not take them."""
        with self._lock:
            return len(self._held)

    def flush(self) -> None:
        """Spool everything that has been collected. When the spool cannot take it, it is held and tried again."""
        with self._lock:
            self._collect()
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
                self._note_failure(str(error))
                self._bound_held()
                return
            self._note_failure(None)
            self._held.clear()
            self._tailed = Tailed()
        self._on_spooled()

    def _note_failure(self, failure: str | None) -> None:
        """Say it once when the spool takes nothing, and once when it does again."""
        if failure and not self._failure:
            _LOG.error("%s; held in memory until it can", failure)
        elif self._failure and not failure:
            _LOG.error("the spool can be written again")
        self._failure = failure

    def _collect(self) -> None:
        tailed = self._tail()
        self._tailed = Tailed(
            opened={**self._tailed.opened, **tailed.opened},
            offsets={**self._tailed.offsets, **tailed.offsets},
            closed=self._tailed.closed + tailed.closed,
        )
        start, end = self._flushed_unix_nano, self._clock.now().unix_nano
        samples, records = self._buffer.drain()
        self._flushed_unix_nano = end
        # Samples go first: when the collector sees a run's end, it has the run's last samples.
        self._hold(samples, droppable=True, start=start, end=end)
        self._hold(records, droppable=False, start=start, end=end)

    def _hold(self, tables: Tables, *, droppable: bool, start: int, end: int) -> None:
        for part in split_rows(tables, _ROWS_A_MESSAGE):
            records = _encode(part)
            self._held.append(Entry(records=records, droppable=droppable, from_unix_nano=start, to_unix_nano=end))

    def _bound_held(self) -> None:
        """Give up the oldest held samples, and hold the gap in their place."""
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
                detail="the spool's disk took nothing",
            )
            self._held = deque([gap, *(entry for entry in self._held if entry not in dropped)])


def _encode(tables: Tables) -> bytes:
    """Encode `tables`; one that cannot be encoded is reported and does not take the others along."""
    try:
        return encode_records(tables)
    except ValueError as error:
        _LOG.error("rows were left out: %s", error)
    return encode_records({name: rows for name, rows in tables.items() if _can_be_encoded(name, tables)})


def _can_be_encoded(name: str, tables: Tables) -> bool:
    try:
        encode_records({name: tables[name]})
    except ValueError:
        return False
    return True
