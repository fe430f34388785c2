"""Executes one checked statement: in a transaction that cannot write, with an end, and cancelled when nobody waits."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from gpuagent_collector.errors import CollectorError, MisuseError

BATCH_ROWS = 10_000
_INTERRUPT_EVERY_SECONDS = 0.05

Parameter = str | int | float | None
"""A value of a statement's `?`."""


class QueryTimeoutError(CollectorError):
    """The statement ran past its time."""


class QueryMemoryError(CollectorError):
    """The statement needs more memory than the store may use."""


class QueryCancelledError(CollectorError):
    """Nobody waits for the answer any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much one statement may take. None: no limit. Memory is limited where the instance is opened."""

    timeout_seconds: float | None = None
    """From the start to the last row taken. A reader who stops reading ends too: its transaction keeps old rows."""
    rows: int | None = None


class Execution:
    """One statement being executed. One thread at a time takes its rows; any may call `cancel` and `close`."""

    def __init__(self, connect: Callable[[], duckdb.DuckDBPyConnection], limits: Limits) -> None:
        """Take what makes a connection to the store that nobody else uses."""
        self._connect = connect
        self._limits = limits
        self._cursor: duckdb.DuckDBPyConnection | None = None
        self._in_use = threading.Lock()
        self._cancelled = threading.Event()
        self._finished = threading.Event()
        self._timed_out = False
        self.truncated = False
        """Whether the row limit cut the answer short; known when its batches are exhausted."""

    def start(self, sql: str, parameters: Sequence[Parameter] = ()) -> pa.RecordBatchReader:
        """Begin to execute `sql`, which the guard has let through, and return its rows as they come.

        Taking them raises the same errors.

        Raises:
            MisuseError: DuckDB finds a mistake in it.
            QueryTimeoutError: it ran past its time.
            QueryMemoryError: it needs too much memory.
            QueryCancelledError: `cancel` was called.
        """
        with self._running():
            self._cursor = cursor = self._connect()
            threading.Thread(target=self._interrupt_when_due, args=(cursor,), daemon=True).start()
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            rows = cursor.execute(sql, list(parameters)).to_arrow_reader(BATCH_ROWS)
        return pa.RecordBatchReader.from_batches(rows.schema, self._batches(rows))

    def cancel(self) -> None:
        """Stop as soon as possible."""
        self._cancelled.set()

    def close(self) -> None:
        """Stop, wait until it has stopped, and let go of the connection."""
        self.cancel()
        with self._in_use:
            self._finished.set()
            if self._cursor is not None:
                self._cursor.close()

    def _batches(self, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        left = self._limits.rows
        while True:
            with self._running():
                batch = next(rows, None)
            if batch is None:
                return
            if left is not None and batch.num_rows > left:
                self.truncated = True
                yield batch.slice(0, left)
                return
            left = None if left is None else left - batch.num_rows
            yield batch

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Keep `close` waiting, and translate what goes wrong. Errors in mid-stream come from Arrow as OSError."""
        with self._in_use:
            self._stop_if_due()
            try:
                yield
            except (duckdb.Error, OSError) as error:
                self._stop_if_due()
                raise _in_words(str(error)) from error

    def _stop_if_due(self) -> None:
        if self._timed_out:
            raise QueryTimeoutError(f"the query ran past its {self._limits.timeout_seconds:g} seconds")
        if self._cancelled.is_set():
            raise QueryCancelledError("the query was cancelled")

    def _interrupt_when_due(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Interrupt until it has stopped: an interrupt that comes before the statement has begun is lost."""
        self._timed_out = not self._cancelled.wait(self._limits.timeout_seconds)
        while not self._finished.wait(_INTERRUPT_EVERY_SECONDS):
            with suppress(duckdb.Error):  # closed just now
                cursor.interrupt()


def _in_words(message: str) -> CollectorError:
    """Return the error for DuckDB's message: its first paragraph, which may hold a `Did you mean`."""
    words = " ".join(message.split("\n\n")[0].split())
    if words.startswith("Out of Memory Error"):
        return QueryMemoryError(f"the query needs more memory than the store may use; {words}")
    return MisuseError(words)
