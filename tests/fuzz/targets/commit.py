"""Telemetry messages into a real store: stored or rejected, each once, and everything that reads the store still can.

Every so often all views are read, runs are summarised, the live view is taken, and the rows are removed.
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from gpuagent_collector.ingest.committer import Committer
from gpuagent_collector.ingest.messages import Message, Verdict
from gpuagent_collector.metrics.summarize import summarize_runs
from gpuagent_collector.query.execute import Limits
from gpuagent_collector.store import Store
from gpuagent_collector.store.columns import agent_tables
from gpuagent_collector.times import utc_now
from gpuagent_collector.watch.snapshot import take_snapshot
from gpuagent_collector.web.asker import Asker
from tests.fuzz.records import made_records
from tests.fuzz.tally import Attempt

TOKENS = (b"host_samples", b"run_states", b"run_requests", b"time", b"run_id", b"status", b"succeeded", b"measure")

_READ_EVERY = 50
_VIEWS = "SELECT view_name FROM duckdb_views() WHERE NOT internal AND schema_name = current_schema()"


@contextmanager
def opened(folder: Path) -> Iterator[Attempt]:
    """Commit what an input makes, as one message of one of two nodes."""
    with Store.open(str(folder / "runs.duckdb")) as store, store.connect() as connection:
        yield _Committing(store, connection).attempt


class _Committing:
    def __init__(self, store: Store, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._tables = agent_tables(connection)
        self._views = [name for (name,) in connection.execute(_VIEWS).fetchall()]
        self._committer = Committer(connection, now=utc_now)
        self._ask = Asker(store.connect, Limits())
        self._numbers = itertools.count(1)
        self._waiting: list[bytes] = []

    def attempt(self, data: bytes) -> None:
        self._commit(data)
        self._waiting.append(data)
        if len(self._waiting) == _READ_EVERY:
            waiting, self._waiting = self._waiting, []
            self._read_or_name(waiting)

    def _commit(self, data: bytes) -> None:
        number, node_id = next(self._numbers), 1 + len(data) % 2
        records = made_records(data, self._tables)
        message = Message(session_id=node_id, node_id=node_id, number=number, records=records)
        receipt = self._committer.commit([message, message])
        first, second = (outcome.verdict for outcome in receipt.outcomes)
        assert first in (Verdict.COMMITTED, Verdict.REJECTED)
        assert second is Verdict.DUPLICATE
        assert (first is Verdict.COMMITTED) or not receipt.rows

    def _read_or_name(self, inputs: list[bytes]) -> None:
        """Read everything; where that fails, find out after which input it does, and say so."""
        try:
            self._read()
        except Exception:
            for data in inputs:
                self._forget()
                self._commit(data)
                try:
                    self._read()
                except Exception as error:
                    raise AssertionError(f"the store cannot be read after {data.hex()}") from error
            raise
        finally:
            self._forget()

    def _read(self) -> None:
        for view in self._views:
            self._connection.execute(f'FROM "{view}"').to_arrow_table()
        runs = self._connection.execute("SELECT DISTINCT run_id FROM run_requests WHERE run_id IS NOT NULL").fetchall()
        summarize_runs(self._connection, [run_id for (run_id,) in runs], utc_now())
        take_snapshot(self._ask)

    def _forget(self) -> None:
        for table in self._tables:
            self._connection.execute(f'DELETE FROM "{table}"')
