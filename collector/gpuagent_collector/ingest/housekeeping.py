"""Work of the writer's thread between commits. Nothing here can lose data, so a failure is logged and retried."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

import duckdb

from gpuagent_collector.errors import StoreError
from gpuagent_collector.ingest.ownership import Duty
from gpuagent_collector.ingest.presence import Presence, declare_lost
from gpuagent_collector.store import Kind, Store
from gpuagent_collector.store.retention import Retention, Slice, retain, trusted_now
from gpuagent_collector.store.transactions import retry_conflicts, transaction
from gpuagent_common.statuses import FINAL_STATUSES

_LOG = logging.getLogger(__name__)

# Runs summarised between two commits while there is a backlog.
_RUNS_AT_ONCE = 20

_NOT_SUMMARISED = "SELECT run_id FROM runs WHERE status = ANY(?) AND run_id NOT IN (SELECT run_id FROM run_metrics)"


# Share of the writer's time for retention, while there is something to do.
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


class Housekeeping:
    """Summaries of ended runs, the end of lost runs, compaction, and retention.

    Each collector of a shared store summarises the runs whose end it stored; one of them does the rest. Two summaries
    of one run are harmless, because the later one counts.
    """

    def __init__(
        self,
        store: Store,
        connection: duckdb.DuckDBPyConnection,
        *,
        duty: Duty,
        presence: Presence,
        summarize: Summarize,
        now: Callable[[], datetime],
        intervals: Intervals,
        retention: Retention,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take `now` for the store's times, and `monotonic`, in seconds, for intervals."""
        self._store = store
        self._connection = connection
        self._duty = duty
        self._presence = presence
        self._summarize = summarize
        self._now = now
        self._intervals = intervals
        self._monotonic = monotonic
        self._retaining = Retaining(
            connection,
            retention,
            sorted_by_node=store.spec.is_lake,
            every=intervals.tidy,
            now=now,
            monotonic=monotonic,
        )
        self._next_check = self._next_tidy = monotonic()
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
        self._presence.begin_again()
        self.catch_up()

    def summarise(self, run_ids: Iterable[str]) -> None:
        """Schedule summaries of these runs for later ticks."""
        self._ended |= dict.fromkeys(run_ids, self._monotonic() + self._intervals.settle.total_seconds())

    def tick(self) -> None:
        """Do all work that is due."""
        moment = self._monotonic()
        if moment >= self._next_check:
            self._next_check = moment + self._intervals.check.total_seconds()
            try:
                if self._duty.take():
                    retry_conflicts(self._end_lost_runs)
            except duckdb.Error as error:
                _LOG.warning("cannot look for runs whose agent has gone; retrying later: %s", error)
                self.store_failed()
            self._retry_failed()
        if self._search and self._duty.is_ours():
            self._find_ended()
        self._summarise_some()
        if moment >= self._next_tidy:
            self._next_tidy = moment + self._intervals.tidy.total_seconds()
            self._tidy()
        self._retaining.tick()

    def _find_ended(self) -> None:
        try:
            rows = self._connection.execute(_NOT_SUMMARISED, [FINAL_STATUSES]).fetchall()
        except duckdb.Error:
            _LOG.exception("cannot look for runs without summary; retrying later")
            return
        self._search = False
        self.summarise(run_id for (run_id,) in rows if run_id not in self._ended)

    def _summarise_some(self) -> None:
        moment = self._monotonic()
        due = (run_id for run_id, seconds in self._ended.items() if seconds <= moment)
        run_ids = list(islice(due, _RUNS_AT_ONCE))
        if not run_ids:
            return
        for run_id in run_ids:
            del self._ended[run_id]
        if not self._store_summaries(run_ids):
            self._failed |= dict.fromkeys(run_ids)

    def _retry_failed(self) -> None:
        for run_id in list(islice(self._failed, _RUNS_AT_ONCE)):
            stored = self._store_summaries([run_id])
            del self._failed[run_id]
            if not stored:
                self._failed[run_id] = None  # behind the others

    def _store_summaries(self, run_ids: Sequence[str]) -> bool:
        """Compute and store the figures of these runs in one transaction; return whether that succeeded."""
        try:
            with transaction(self._connection):
                self._summarize(self._connection, run_ids, self._now())
        except Exception as error:  # noqa: BLE001 - ingest must go on whatever fails in a summary
            level = logging.DEBUG if self._failed.keys() >= set(run_ids) else logging.ERROR
            _LOG.log(level, "cannot summarise %s; retrying later: %s", ", ".join(run_ids), error, exc_info=True)
            return False
        return True

    def _end_lost_runs(self) -> None:
        lost: Sequence[str] = ()
        with transaction(self._connection):
            if self._duty.sign():
                lost = declare_lost(self._connection, self._presence, now=self._now(), after=self._intervals.lost_after)
        for run_id in lost:
            _LOG.info("run %s is lost", run_id)
        self.summarise(lost)

    def _tidy(self) -> None:
        if self._store.spec.kind is Kind.SHARED:
            self.catch_up()
            return
        try:
            self._store.tidy()
        except StoreError as error:
            _LOG.warning("%s", error)


class Retaining:
    """Retention between commits, in slices so short that no agent waits. It belongs to the writer's thread."""

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
        """Take whether the store is sorted by node, and the interval between looks for old rows."""
        self._connection = connection
        self._retention = retention
        self._sorted_by_node = sorted_by_node
        self._every = every
        self._now = now
        self._monotonic = monotonic
        self._slices: Iterator[Slice] | None = None
        self._next = monotonic()

    def tick(self) -> None:
        """Do a slice when it is due. Nothing can be lost here, so a failure is logged and retried."""
        started = self._monotonic()
        if not self._retention or started < self._next:
            return
        done = self._do_slice()
        ended = self._monotonic()
        if done is None:
            self._slices = None
            self._next = ended + self._every.total_seconds()
        else:
            self._next = ended + (ended - started) * (1 / _RETENTION_SHARE - 1)

    def _do_slice(self) -> Slice | None:
        try:
            if self._slices is None:
                now = trusted_now(self._connection, self._now())
                self._slices = retain(self._connection, self._retention, now, sorted_by_node=self._sorted_by_node)
            return next(self._slices, None)
        except duckdb.Error as error:
            _LOG.warning("cannot thin samples out; retrying later: %s", error)
            return None
