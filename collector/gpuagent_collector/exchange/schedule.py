"""Verified copies of a store at intervals, while its collector runs."""

import logging
import re
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa

from gpuagent_collector.exchange.backup import backup
from gpuagent_collector.query.execute import Parameter
from gpuagent_collector.query.snapshot import TableRows, tables_of
from gpuagent_collector.store import Store
from gpuagent_collector.times import utc_now
from gpuagent_common.errors import GpuAgentError

_LOG = logging.getLogger(__name__)

_TIME = "%Y%m%dT%H%M%SZ"
_RETRY = timedelta(minutes=10)
# The copy's part of the memory; the rest is the collector's.
_MEMORY_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupPlan:
    """The folder of the copies, the time between two, and the number that is kept."""

    folder: Path
    every: timedelta
    copies: int


class BackupSchedule:
    """The copies of one store. `stop` may be called by any thread, everything else by one."""

    def __init__(self, store: Store, plan: BackupPlan, now: Callable[[], datetime] = utc_now) -> None:
        self._store = store
        self._plan = plan
        self._now = now
        self._stopping = threading.Event()
        self._failed_at: datetime | None = None

    def copies(self) -> Sequence[tuple[datetime, Path]]:
        """Return the existing copies and their times, in UTC, oldest first."""
        name = re.compile(rf"{re.escape(self._store.spec.path.stem)}-(\d{{8}}T\d{{6}}Z)\.duckdb")
        found = ((name.fullmatch(path.name), path) for path in self._plan.folder.glob("*.duckdb"))
        return sorted((datetime.strptime(match[1], _TIME), path) for match, path in found if match)  # noqa: DTZ007 - as the store's

    def seconds_until_due(self) -> float:
        """Return the time until the next copy; it survives restarts, because copies have their time in their names."""
        due = [time + self._plan.every for time, _ in self.copies()[-1:]]
        due += [self._failed_at + min(_RETRY, self._plan.every)] if self._failed_at else []
        return max([0.0, *((time - self._now()).total_seconds() for time in due)])

    def attempt(self) -> None:
        """Make a copy, and remove the oldest beyond the number that is kept. A failure is logged."""
        file = self._plan.folder / f"{self._store.spec.path.stem}-{self._now().strftime(_TIME)}.duckdb"
        try:
            copied = backup(_OpenStore(self._store, self._stopping), file, _ignore, memory_bytes=_MEMORY_BYTES)
            for _, old in self.copies()[: -self._plan.copies]:
                old.unlink()
        except (GpuAgentError, OSError) as error:
            self._failed_at = self._now()
            if not self._stopping.is_set():
                _LOG.error("backup failed, retrying in at most %g min: %s", _RETRY.total_seconds() / 60, error)
            return
        self._failed_at = None
        if copied.left_out:
            _LOG.warning("backup %s lacks %s; keep the statements that make them", file, copied.lacking)
        _LOG.info("backup %s: %d rows", file, copied.rows)

    def stop(self) -> None:
        """Let a copy that is being made fail."""
        self._stopping.set()


@dataclass(frozen=True, slots=True)
class _OpenStore:
    """The collector's own store as the origin of a copy."""

    store: Store
    stopping: threading.Event

    @property
    def source(self) -> str:
        return f"the store {self.store.spec}"

    def sql(self, query: str, parameters: Sequence[Parameter] = ()) -> pa.Table:
        with closing(self.store.connect()) as connection:
            return connection.execute(query, list(parameters)).to_arrow_table()

    def snapshot(self) -> Generator[TableRows, None, None]:
        with closing(tables_of(self.store)) as tables:
            for table, rows in tables:
                yield table, pa.RecordBatchReader.from_batches(rows.schema, self._until_stopped(rows))

    def _until_stopped(self, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            if self.stopping.is_set():
                raise OSError("the collector stops")
            yield batch


def _ignore(_table: str, _rows: int) -> None:
    pass
