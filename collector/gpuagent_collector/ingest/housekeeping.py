"""What the writer's thread does between commits. Nothing here can lose data, so a failure is logged and tried again."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

import duckdb

from gpuagent_collector.errors import StoreError
from gpuagent_collector.ingest.lost import declare_lost
from gpuagent_collector.ingest.presence import Presence
from gpuagent_collector.ingest.rows import FINAL_STATUSES
from gpuagent_collector.store import Store

_LOG = logging.getLogger(__name__)

_NOT_SUMMARISED = "SELECT run_id FROM runs WHERE status = ANY(?) AND run_id NOT IN (SELECT run_id FROM run_metrics)"


class Summarize(Protocol):
    """Appends the figures of ended runs to `run_metrics`."""

    def __call__(self, connection: duckdb.DuckDBPyConnection, run_ids: Sequence[str], computed_at: datetime) -> None:
        """Append the figures of these runs."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """How often, and after how long."""

    lost_after: timedelta = timedelta(seconds=120)
    """Silence after which an agent's runs are lost."""
    check: timedelta = timedelta(seconds=10)
    """How often runs are looked through."""
    tidy: timedelta = timedelta(minutes=10)
    """How often the store is tidied."""


class Housekeeping:
    """Summarises runs that ended, ends runs whose agent has gone, and tidies the store."""

    def __init__(
        self,
        store: Store,
        connection: duckdb.DuckDBPyConnection,
        *,
        presence: Presence,
        summarize: Summarize,
        now: Callable[[], datetime],
        intervals: Intervals,
    ) -> None:
        self._store = store
        self._connection = connection
        self._presence = presence
        self._summarize = summarize
        self._now = now
        self._intervals = intervals
        self._next_check = self._next_tidy = now()

    def catch_up(self) -> None:
        """Summarise the runs that ended without: the collector was stopped in between."""
        try:
            rows = self._connection.execute(_NOT_SUMMARISED, [FINAL_STATUSES]).fetchall()
        except duckdb.Error:
            _LOG.exception("cannot look for runs without summary")
            return
        self.summarise([run_id for (run_id,) in rows])

    def summarise(self, run_ids: Sequence[str]) -> None:
        """Compute and store the figures of these runs, in a transaction of its own."""
        if not run_ids:
            return
        self._connection.begin()
        try:
            self._summarize(self._connection, run_ids, self._now())
            self._connection.commit()
        except Exception:  # noqa: BLE001 - whatever fails in a summary, ingest goes on
            _LOG.exception("cannot summarise %s; it is tried again when the collector starts", ", ".join(run_ids))
            self._roll_back()

    def tick(self) -> None:
        """Do what is due."""
        now = self._now()
        if now >= self._next_check:
            self._next_check = now + self._intervals.check
            self._end_lost_runs(now)
        if now >= self._next_tidy:
            self._next_tidy = now + self._intervals.tidy
            self._tidy()

    def _end_lost_runs(self, now: datetime) -> None:
        try:
            lost = declare_lost(self._connection, self._presence, now=now, after=self._intervals.lost_after)
        except duckdb.Error:
            _LOG.exception("cannot end the runs whose agent has gone")
            return
        for run_id in lost:
            _LOG.info("run %s is lost", run_id)
        self.summarise(lost)

    def _tidy(self) -> None:
        try:
            self._store.tidy()
        except StoreError as error:
            _LOG.warning("%s", error)

    def _roll_back(self) -> None:
        try:
            self._connection.rollback()
        except duckdb.Error:
            _LOG.debug("nothing to roll back", exc_info=True)
