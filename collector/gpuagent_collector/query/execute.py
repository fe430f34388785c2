"""Executes one checked statement: in a transaction that cannot write, with an end, and cancelled when nobody waits."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from gpuagent_common.errors import GpuAgentError, MisuseError

# DuckDB makes so many rows at a time; larger batches would only hold more of them.
BATCH_ROWS = 2048
_INTERRUPT_EVERY_SECONDS = 0.05

# Without what is kept of the store's files: DuckDB keeps all that was read or written until others need the memory,
# so that it fills sooner or later whatever queries do.
_MEMORY_IN_USE = """
SELECT coalesce(sum(memory_usage_bytes), 0)::BIGINT FROM duckdb_memory()
WHERE tag NOT IN ('BASE_TABLE', 'EXTERNAL_FILE_CACHE')
"""

# A value of a statement's `?`; a list for `IN (SELECT unnest(?))`.
Parameter = str | int | float | Sequence[str] | Sequence[int] | None


class QueryTimeoutError(GpuAgentError):
    """The statement ran past its time."""


class QueryMemoryError(GpuAgentError):
    """The statement needs more memory than the store may use."""


class QueryCancelledError(GpuAgentError):
    """Nobody waits for the answer any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much one statement may take. None: no limit.

    DuckDB has no memory limit for one statement: all of them share the instance's with the writer.
    """

    # From the start to the last row taken. A reader who stops reading ends too: its transaction keeps old rows.
    timeout_seconds: float | None = None
    rows: int | None = None
    # Of the answer, as Arrow holds it.
    size_bytes: int | None = None
    # Of all that DuckDB holds. A commit that finds no memory can leave DuckDB's tables unusable until a restart, so
    # queries have to end before it is used up.
    store_memory_bytes: int | None = None


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
        self._watcher: threading.Thread | None = None
        self._timed_out = False
        self._evicted = False
        # Whether a limit cut the answer short; known when its batches are exhausted.
        self.truncated = False

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
            self._watcher = threading.Thread(target=self._interrupt_when_due, args=(cursor,), daemon=True)
            self._watcher.start()
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            rows = cursor.execute(sql, list(parameters)).to_arrow_reader(BATCH_ROWS)
        return pa.RecordBatchReader.from_batches(rows.schema, self._batches(rows))

    def cancel(self) -> None:
        """Stop as soon as possible."""
        self._cancelled.set()

    def evict(self) -> None:
        """Stop as soon as possible, because the store needs the memory."""
        self._evicted = True
        self.cancel()

    def close(self) -> None:
        """Stop, wait until it has stopped, and let go of the connection."""
        self.cancel()
        with self._in_use:
            self._finished.set()
            if self._watcher is not None:
                # A store that is closed while the watcher connects to it, or lets go of it, would fail or hang.
                self._watcher.join()
            if self._cursor is not None:
                self._cursor.close()

    def _batches(self, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        rows_left, bytes_left = self._limits.rows, self._limits.size_bytes
        while True:
            with self._running():
                batch = next(rows, None)
            if batch is None:
                return
            given = _cut(batch, rows_left, bytes_left)
            yield given
            if given.num_rows < batch.num_rows:
                self.truncated = True
                return
            rows_left = None if rows_left is None else rows_left - batch.num_rows
            bytes_left = None if bytes_left is None else bytes_left - batch.nbytes

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
        if self._evicted:
            raise QueryMemoryError(
                "the query was stopped, because the collector needed the memory to store what agents send; ask for less"
            )
        if self._timed_out:
            raise QueryTimeoutError(f"the query ran past its {self._limits.timeout_seconds:g} seconds")
        if self._cancelled.is_set():
            raise QueryCancelledError("the query was cancelled")

    def _interrupt_when_due(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Interrupt until it has stopped: an interrupt that comes before the statement has begun is lost."""
        with self._connect() as watch:
            self._wait_until_due(watch)
        while not self._finished.wait(_INTERRUPT_EVERY_SECONDS):
            with suppress(duckdb.Error):  # closed just now
                cursor.interrupt()

    def _wait_until_due(self, watch: duckdb.DuckDBPyConnection) -> None:
        limits, started = self._limits, time.monotonic()
        while not self._cancelled.wait(_INTERRUPT_EVERY_SECONDS):
            seconds = time.monotonic() - started
            if limits.timeout_seconds is not None and seconds >= limits.timeout_seconds:
                self._timed_out = True
                return
            if limits.store_memory_bytes is not None and _memory_bytes(watch) > limits.store_memory_bytes:
                self.evict()


def _memory_bytes(connection: duckdb.DuckDBPyConnection) -> int:
    row = connection.execute(_MEMORY_IN_USE).fetchone()
    return row[0] if row else 0


def _cut(batch: pa.RecordBatch, rows: int | None, size_bytes: int | None) -> pa.RecordBatch:
    """Return what of a batch is within the limits; of one that is too large, nothing."""
    if size_bytes is not None and batch.nbytes > size_bytes:
        return batch.slice(0, 0)
    return batch if rows is None else batch.slice(0, rows)


def _in_words(message: str) -> GpuAgentError:
    """Return the error for DuckDB's message: its first paragraph, which may hold a `Did you mean`."""
    words = " ".join(message.split("\n\n")[0].split())
    if words.startswith("Out of Memory Error"):
        return QueryMemoryError(f"the query needs more memory than the store may use; {words}")
    return MisuseError(words)
