"""Statements that are interrupted when they take too long, without a thread for each."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import duckdb
import pyarrow as pa

_LOOKS_EVERY_SECONDS = 0.1
_ROWS = 100


class Bounded:
    """Executes statements on one connection; an interrupted one raises duckdb.Error."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, *, seconds: float) -> None:
        self._connection = connection
        self._seconds = seconds
        self._due: float | None = None
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    @contextmanager
    def watched(self) -> Iterator["Bounded"]:
        """Interrupt what takes too long within this."""
        self._watcher.start()
        try:
            yield self
        finally:
            self._ended.set()
            self._watcher.join()

    def first_rows(self, sql: str) -> pa.RecordBatch | None:
        """Return the first rows of a statement, as Arrow has them: not every value has a Python type."""
        self._due = time.monotonic() + self._seconds
        try:
            return next(self._connection.execute(sql).to_arrow_reader(_ROWS), None)
        # What goes wrong in mid-stream comes from Arrow.
        except (OSError, pa.ArrowException) as error:
            raise duckdb.Error(str(error)) from error
        finally:
            self._due = None

    def _watch(self) -> None:
        while not self._ended.wait(_LOOKS_EVERY_SECONDS):
            due = self._due
            if due is not None and time.monotonic() > due:
                with suppress(duckdb.Error):
                    self._connection.interrupt()
