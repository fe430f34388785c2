"""What the writer's thread does between commits. Nothing here can lose data, so a failure is logged and tried again."""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Protocol

import duckdb

from gpuagent_collector.errors import StoreError
from gpuagent_collector.ingest.duty import Duty
from gpuagent_collector.ingest.lost import declare_lost
from gpuagent_collector.ingest.presence import Presence
from gpuagent_collector.ingest.retaining import Retaining
from gpuagent_collector.store import Kind, Store
from gpuagent_collector.store.retention import Retention
from gpuagent_collector.store.transactions import transaction, until_first
from gpuagent_common.statuses import FINAL_STATUSES

_LOG = logging.getLogger(__name__)

# So many runs are summarised between two commits when there is much to catch up with.
_RUNS_AT_ONCE = 20

_NOT_SUMMARISED = "SELECT run_id FROM runs WHERE status = ANY(?) AND run_id NOT IN (SELECT run_id FROM run_metrics)"


class Summarize(Protocol):
    """Appends the figures of ended runs to `run_metrics`."""

    def __call__(self, connection: duckdb.DuckDBPyConnection, run_ids: Sequence[str], computed_at: datetime) -> None:
        """Append the figures of these runs."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """How often, and after how long."""

    # Silence after which an agent's runs are lost.
    lost_after: timedelta = timedelta(seconds=120)
    # How often runs are looked through.
    check: timedelta = timedelta(seconds=10)
    # How often the store is tidied, and looked through for what has become old. One that several collectors share is
    # not, but by `collector compact`; there it is how often runs are looked for whose collector has gone before it
    # summarised them.
    tidy: timedelta = timedelta(minutes=10)
    # How long a run that ended waits for its summary: what its other nodes sent may be committed later.
    settle: timedelta = timedelta(0)


class Housekeeping:
    """Summarises runs that ended, ends runs whose agent has gone, tidies the store, and thins out what is old.

    Of a store that several collectors share each summarises the runs whose end it stored; one of them does the rest.
    Two summaries of one run do no harm: the later one counts.
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
        """Take `now`, which the store's times are made with, and `monotonic`, in seconds, which says what is due."""
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
        # Runs that wait for their summary, in order, and when it is due.
        self._ended: dict[str, float] = {}
        # Runs whose summary failed; each is tried again alone, so that one of them holds up no other.
        self._failed: dict[str, None] = {}
        self._search = False

    def catch_up(self) -> None:
        """Have the runs summarised that ended without: it is not known which ended in the commits before."""
        self._search = True

    def store_failed(self) -> None:
        """Take note that the store could not be used for a while: what was not committed then is no silence."""
        self._presence.begin_again()
        self.catch_up()

    def summarise(self, run_ids: Iterable[str]) -> None:
        """Have the figures of these runs computed and stored by the ticks to come."""
        self._ended |= dict.fromkeys(run_ids, self._monotonic() + self._intervals.settle.total_seconds())

    def tick(self) -> None:
        """Do what is due."""
        moment = self._monotonic()
        if moment >= self._next_check:
            self._next_check = moment + self._intervals.check.total_seconds()
            self._keep_house()
            self._try_again()
        if self._search and self._duty.is_ours():
            self._find_ended()
        self._summarise_some()
        if moment >= self._next_tidy:
            self._next_tidy = moment + self._intervals.tidy.total_seconds()
            self._tidy()
        self._retaining.tick()

    def _keep_house(self) -> None:
        try:
            if self._duty.take():
                until_first(self._end_lost_runs)
        except duckdb.Error as error:
            _LOG.warning("cannot look for runs whose agent has gone; it is tried again: %s", error)
            self.store_failed()

    def _find_ended(self) -> None:
        try:
            rows = self._connection.execute(_NOT_SUMMARISED, [FINAL_STATUSES]).fetchall()
        except duckdb.Error:
            _LOG.exception("cannot look for runs without summary")
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

    def _try_again(self) -> None:
        for run_id in list(islice(self._failed, _RUNS_AT_ONCE)):
            stored = self._store_summaries([run_id])
            del self._failed[run_id]
            if not stored:
                self._failed[run_id] = None  # behind the others

    def _store_summaries(self, run_ids: Sequence[str]) -> bool:
        """Compute and store the figures of these runs in a transaction of its own; return whether that worked."""
        try:
            self._connection.begin()
            self._summarize(self._connection, run_ids, self._now())
            self._connection.commit()
        except Exception as error:  # noqa: BLE001 - whatever fails in a summary, ingest goes on
            again = self._failed.keys() >= set(run_ids)
            _LOG.log(
                logging.DEBUG if again else logging.ERROR,
                "cannot summarise %s; it is tried again: %s",
                ", ".join(run_ids),
                error,
                exc_info=True,
            )
            self._roll_back()
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

    def _roll_back(self) -> None:
        try:
            self._connection.rollback()
        except duckdb.Error:
            _LOG.debug("nothing to roll back", exc_info=True)
