"""Work of the writer's thread between commits. Nothing here can lose data, so a failure is logged and retried."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, islice

import duckdb

from gpuagent_collector.errors import StoreError
from gpuagent_collector.ingest.ownership import Duty
from gpuagent_collector.ingest.presence import Presence, declare_lost
from gpuagent_collector.store import Kind, Store
from gpuagent_collector.store.retention import Retention, Slice, retain, trusted_now
from gpuagent_collector.store.sorting import sort_old
from gpuagent_collector.store.transactions import retry_conflicts, transaction
from gpuagent_common.statuses import FINAL_STATUSES

_LOG = logging.getLogger(__name__)

# Runs summarised between two commits while there is a backlog.
_RUNS_AT_ONCE = 20

# Lost runs that the log names at one look.
_LOGGED_RUNS = 20

_NOT_SUMMARISED = "SELECT run_id FROM runs WHERE status = ANY(?) AND run_id NOT IN (SELECT run_id FROM run_metrics)"

# Share of the writer's time for retention and sorting, while there is something to do.
_RETENTION_SHARE = 0.2

# Appends the figures of these ended runs to `run_metrics`, computed at this time.
Summarize = Callable[[duckdb.DuckDBPyConnection, Sequence[str], datetime], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Intervals and delays of housekeeping."""

    # Silence after which an agent's runs are lost.
    lost_after: timedelta = timedelta(seconds=120)
    # Interval between looks for lost runs.
    check: timedelta = timedelta(seconds=10)
    # Interval between compactions, and between looks for old rows. A shared store is compacted by `collector compact`;
    # there it is the interval between looks for runs whose collector ended before it summarised them.
    tidy: timedelta = timedelta(minutes=10)
    # Delay of a run's summary after its end, because rows of its other nodes may be committed later.
    settle: timedelta = timedelta(0)


@dataclass(kw_only=True)
class Housekeeping:
    """Summaries of ended runs, the end of lost runs, compaction, retention and sorting.

    Each collector of a shared store summarises the runs whose end it stored; one of them does the rest. Two summaries
    of one run are harmless, because the later one counts.
    """

    store: Store
    connection: duckdb.DuckDBPyConnection
    duty: Duty
    presence: Presence
    summarize: Summarize
    # For the store's times.
    now: Callable[[], datetime]
    intervals: Intervals
    retention: Retention
    # For intervals.
    monotonic: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._retaining = Retaining(
            self.connection,
            self.retention,
            is_lake=self.store.spec.is_lake,
            every=self.intervals.tidy,
            now=self.now,
            monotonic=self.monotonic,
        )
        self._next_check = self._next_tidy = self.monotonic()
        # Run → when its summary is due, in order.
        self._ended: dict[str, float] = {}
        # Runs whose summary failed; each is retried alone, so that none blocks another.
        self._failed: dict[str, None] = {}
        self._search = False

    def catch_up(self) -> None:
        """Schedule a search for ended runs without summary, because earlier ends are unknown."""
        self._search = True

    def store_failed(self) -> None:
        """Reset the measure of silence, because nothing could be committed while the store failed."""
        self.presence.begin_again()
        self.catch_up()

    def summarise(self, run_ids: Iterable[str]) -> None:
        """Summarise some of the runs that are due, these among them; later ticks summarise the others."""
        self._ended |= dict.fromkeys(run_ids, self.monotonic() + self.intervals.settle.total_seconds())
        self._summarise_some()

    def tick(self) -> None:
        """Do all work that is due."""
        moment = self.monotonic()
        if moment >= self._next_check:
            self._next_check = moment + self.intervals.check.total_seconds()
            try:
                if self.duty.take():
                    retry_conflicts(self._end_lost_runs)
            except duckdb.Error as error:
                _LOG.warning("cannot look for runs whose agent has gone; retrying later: %s", error)
                self.store_failed()
            for run_id in list(islice(self._failed, _RUNS_AT_ONCE)):
                stored = self._store_summaries([run_id])
                del self._failed[run_id]
                if not stored:
                    self._failed[run_id] = None  # behind the others
        if self._search and self.duty.is_ours():
            self._find_ended()
        self._summarise_some()
        if moment >= self._next_tidy:
            self._next_tidy = moment + self.intervals.tidy.total_seconds()
            if self.store.spec.kind is Kind.SHARED:
                self.catch_up()
            else:
                try:
                    self.store.tidy()
                except StoreError as error:
                    _LOG.warning("%s", error)
        self._retaining.tick()

    def _find_ended(self) -> None:
        try:
            rows = self.connection.execute(_NOT_SUMMARISED, [FINAL_STATUSES]).fetchall()
        except duckdb.Error:
            _LOG.exception("cannot look for runs without summary; retrying later")
            return
        self._search = False
        self.summarise(run_id for (run_id,) in rows if run_id not in self._ended)

    def _summarise_some(self) -> None:
        moment = self.monotonic()
        due = (run_id for run_id, seconds in self._ended.items() if seconds <= moment)
        run_ids = list(islice(due, _RUNS_AT_ONCE))
        if not run_ids:
            return
        for run_id in run_ids:
            del self._ended[run_id]
        if not self._store_summaries(run_ids):
            self._failed |= dict.fromkeys(run_ids)

    def _store_summaries(self, run_ids: Sequence[str]) -> bool:
        """Compute and store the figures of these runs in one transaction; return whether that succeeded."""
        try:
            with transaction(self.connection):
                self.summarize(self.connection, run_ids, self.now())
        except Exception as error:  # noqa: BLE001 - ingest must go on whatever fails in a summary
            level = logging.DEBUG if self._failed.keys() >= set(run_ids) else logging.ERROR
            _LOG.log(level, "cannot summarise %s; retrying later: %s", ", ".join(run_ids), error, exc_info=True)
            return False
        return True

    def _end_lost_runs(self) -> None:
        lost: Sequence[str] = ()
        with transaction(self.connection):
            if self.duty.sign():
                lost = declare_lost(self.connection, self.presence, now=self.now(), after=self.intervals.lost_after)
        for run_id in lost[:_LOGGED_RUNS]:
            _LOG.info("run %s is lost", run_id)
        if len(lost) > _LOGGED_RUNS:
            _LOG.info("%d more runs are lost", len(lost) - _LOGGED_RUNS)
        self.summarise(lost)


@dataclass
class Retaining:
    """Retention and a file's sorting between commits, in short slices. It belongs to the writer's thread."""

    connection: duckdb.DuckDBPyConnection
    retention: Retention
    # A lake sorts when it is compacted.
    is_lake: bool
    # Interval between looks for old rows.
    every: timedelta
    now: Callable[[], datetime]
    monotonic: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._slices: Iterator[Slice] | None = None
        self._next = self.monotonic()

    def tick(self) -> None:
        """Do a slice when it is due. Nothing can be lost here, so a failure is logged and retried."""
        started = self.monotonic()
        if started < self._next or (self.is_lake and not self.retention):
            return
        done: Slice | None = None
        try:
            if self._slices is None:
                now = trusted_now(self.connection, self.now())
                thinned = retain(self.connection, self.retention, now, sorted_by_node=self.is_lake)
                self._slices = thinned if self.is_lake else chain(thinned, sort_old(self.connection, now))
            done = next(self._slices, None)
        except duckdb.Error as error:
            _LOG.warning("cannot thin out or sort samples; retrying later: %s", error)
        ended = self.monotonic()
        if done is None:
            self._slices = None
            self._next = ended + self.every.total_seconds()
        else:
            self._next = ended + (ended - started) * (1 / _RETENTION_SHARE - 1)
