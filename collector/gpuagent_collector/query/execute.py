"""The execution of one checked statement: read-only, bounded in time and memory, cancellable."""

import ctypes
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path

import _duckdb
import duckdb
import pyarrow as pa

from gpuagent_collector.errors import StoreError
from gpuagent_collector.metrics import BY_NAME
from gpuagent_collector.schema.describe import describe_store
from gpuagent_common.errors import GpuAgentError, MisuseError

# DuckDB's own vector size; larger batches would only hold more rows in memory.
BATCH_ROWS = 2048
_INTERRUPT_EVERY_SECONDS = 0.05

# Aggregates can take 1 GB/s that DuckDB does not count. Asking the system for the process's memory is cheap; where it
# has grown by this, DuckDB is asked at once.
_LOOK_SECONDS = 0.01
_LEAST_GROWTH_BYTES = 8 * 2**20

# Time for a statement that must end to obey its interrupts.
OBEY_SECONDS = 1.0

# The same where memory is short: a step of a viewer's statement at its bound takes longer on a busy machine.
_RELEASE_SECONDS = 10.0

# All that DuckDB counts, and the same without the cache of the store's files: DuckDB keeps it until other work needs
# the memory, so it always fills.
_MEMORY_IN_USE = """
SELECT coalesce(sum(memory_usage_bytes), 0)::BIGINT,
       coalesce(sum(memory_usage_bytes) FILTER (tag NOT IN ('BASE_TABLE', 'EXTERNAL_FILE_CACHE')), 0)::BIGINT
FROM duckdb_memory()
"""

# What DuckDB computes before its reader asks. It counts 16 bytes for a text of any length: of long ones, its default of
# 1 MB is 2 GB.
_LEAST_AHEAD = "SET streaming_buffer_size = '64KiB'"

# Linux alone has this file.
STATM = Path("/proc/self/statm")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

# jemalloc would return memory when the same threads allocate next. There are as many arenas as processors.
_PURGE_ALL_ARENAS = b"arena.4096.purge"
# Of glibc's mallopt: larger blocks go back to the system as soon as they are free.
_M_MMAP_THRESHOLD = -3
# The same: an arena for each thread. Of fewer, the writer would share one with a statement that frees millions of
# blocks, and wait for seconds until they are returned.
_M_ARENA_MAX = -8
_ARENAS = 256

# DuckDB's message after an interrupt. It or none at all can also come instead of a reason, where one of its threads
# fails while another makes rows.
_INTERRUPTED = "INTERRUPT Error"
_FAILED_MIDWAY = (
    "the statement failed in mid-answer, and DuckDB does not say at which value; where a cast can fail, use TRY_CAST"
)

# The beginning of DuckDB's messages, such as "Binder Error: ".
_KIND = re.compile(r"[A-Z][A-Za-z ]{1,30} Error: ")
_NO_COLUMN = re.compile(r'Referenced column "(.+?)" not found in FROM clause! Candidate bindings: (.+)')
_NO_COLUMN_OF = re.compile(r'(?:Values list|Table) "(.+?)" does not have a column named "(.+?)"')
_SELECT_METRIC = "SELECT run_id, value FROM metrics WHERE metric = "

# A value of a statement's `?`; a list for `IN (SELECT unnest(?))`.
Parameter = str | int | float | Sequence[str] | Sequence[int] | None


class QueryTimeoutError(GpuAgentError):
    """The statement exceeded its time limit."""


class QueryMemoryError(GpuAgentError):
    """The statement needs more memory than the store may use."""


class QueryCancelledError(GpuAgentError):
    """The statement was cancelled by its caller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one statement. None: no limit.

    DuckDB has no memory limit for one statement: all of them share the instance's with the writer.
    """

    # From the request to the last row read. It also ends a reader that stops reading, whose transaction keeps old rows.
    timeout_seconds: float | None = None
    rows: int | None = None
    # Of the answer in Arrow's memory.
    size_bytes: int | None = None
    # Of DuckDB as a whole. A commit without memory can leave DuckDB's tables unusable until a restart, so queries must
    # end before memory runs out.
    store_memory_bytes: int | None = None
    # Of this process, without what DuckDB counts: texts, lists and states of aggregates that its functions make.
    other_memory_bytes: int | None = None
    # Of this process. Beyond it memory is short, whatever DuckDB counts: asking it takes time in which memory grows.
    process_memory_bytes: int | None = None


class Execution:
    """A statement in execution. One thread at a time reads its rows; any thread may call `cancel` and `close`."""

    def __init__(
        self,
        connect: Callable[[], duckdb.DuckDBPyConnection],
        limits: Limits,
        *,
        on_short: Callable[[], None] | None = None,
        on_stuck: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """Keep `connect`, which opens a new connection to the store.

        Both are called in another thread. `on_short`: whenever memory is short, instead of ending this statement.
        `on_stuck`: with False, if it does not obey interrupts for a second after its limit; with True, if it does not
        for ten seconds, and memory is short then.
        """
        self._connect = connect
        self._limits = limits
        seconds = math.inf if limits.timeout_seconds is None else limits.timeout_seconds
        self._ends_at = time.monotonic() + seconds
        self._on_short = on_short or self.evict
        self._on_stuck = on_stuck
        self._sql = ""
        self._cursor: duckdb.DuckDBPyConnection | None = None
        self._rows: pa.RecordBatchReader | None = None
        self._in_use = threading.Lock()
        self._cancelled = threading.Event()
        self._finished = threading.Event()
        self._watcher: threading.Thread | None = None
        self._timed_out = False
        # Whether it must stop to free memory.
        self.is_evicted = False
        # Whether a limit cut the answer short; known when its batches are exhausted.
        self.truncated = False

    def start(self, sql: str, parameters: Sequence[Parameter] = ()) -> pa.RecordBatchReader:
        """Start a statement that the guard has checked, and return its rows as a stream.

        Reading them raises the same errors.

        Raises:
            MisuseError: DuckDB rejects it.
            QueryTimeoutError: it exceeded its time.
            QueryMemoryError: it needs too much memory.
            QueryCancelledError: `cancel` was called.
        """
        self._sql = sql
        with self._hold_open():
            self._cursor = cursor = self._connect()
            self._watcher = threading.Thread(target=self._interrupt_when_due, args=(cursor,), daemon=True)
            self._watcher.start()
            cursor.execute(_LEAST_AHEAD)
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            self._rows = rows = cursor.execute(sql, list(parameters)).to_arrow_reader(BATCH_ROWS)
        return pa.RecordBatchReader.from_batches(rows.schema, self._batches(rows))

    def cancel(self) -> None:
        """Stop as soon as possible."""
        self._cancelled.set()

    def evict(self) -> None:
        """Stop as soon as possible, to free memory for the store."""
        self.is_evicted = True
        self.cancel()

    def close(self) -> None:
        """Stop, wait until it has stopped, and close the connection."""
        self.cancel()
        with self._in_use:
            self._finished.set()
            if self._watcher is not None:
                # Closing the store while the watcher connects or disconnects would fail or hang.
                self._watcher.join()
            if self._rows is not None:
                # An error's traceback keeps these rows, and they keep the instance: opening the same store again in
                # this process would wait for it forever, busily (DuckDB 1.5.5).
                self._rows.close()
            if self._cursor is not None:
                self._cursor.close()

    def _batches(self, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        rows_left, bytes_left = self._limits.rows, self._limits.size_bytes
        while True:
            with self._hold_open():
                batch = next(rows, None)
            if batch is None:
                return
            kept = batch if rows_left is None else batch.slice(0, rows_left)
            if bytes_left is not None and batch.nbytes > bytes_left:
                kept = batch.slice(0, 0)
            yield kept
            if kept.num_rows < batch.num_rows:
                self.truncated = True
                return
            rows_left = None if rows_left is None else rows_left - batch.num_rows
            bytes_left = None if bytes_left is None else bytes_left - batch.nbytes
            # Of two batches at once one would be in vain, and an error's traceback would keep it.
            del batch, kept

    @contextmanager
    def _hold_open(self) -> Iterator[None]:
        """Hold off `close`, and translate errors. Errors in mid-stream come from Arrow as OSError."""
        with self._in_use:
            self.check()
            try:
                yield
            except (duckdb.Error, OSError) as error:
                self.check()
                raise _to_error(str(error), self._sql) from error
            except UnicodeDecodeError as error:  # of DuckDB's message, which cuts a text in the middle of a character
                self.check()
                raise _to_error(error.object.decode(errors="replace"), self._sql) from error

    def check(self) -> None:
        """Raise the error of a statement that must stop, if it must."""
        if self.is_evicted:
            raise QueryMemoryError("the query was stopped to free memory for the samples of agents; ask for less")
        if self._timed_out or (not self._cancelled.is_set() and time.monotonic() >= self._ends_at):
            raise QueryTimeoutError(f"the query exceeded its {self._limits.timeout_seconds:g} s; ask for less")
        if self._cancelled.is_set():
            raise QueryCancelledError("the query was cancelled")

    def _interrupt_when_due(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Interrupt until the statement has stopped: an interrupt before its start is lost."""
        with self._connect() as watch:
            self._wait_until_due(watch)
            # A caller who cancels waits for nothing, so the time limit goes on.
            obeys_until = math.inf if self.is_evicted else self._ends_at + OBEY_SECONDS
            releases_until = time.monotonic() + _RELEASE_SECONDS
            while not self._finished.is_set():
                with suppress(duckdb.Error):  # closed meanwhile
                    cursor.interrupt()
                self._finished.wait(_INTERRUPT_EVERY_SECONDS)
                # Between two reads of rows nothing runs that could obey.
                if not self._in_use.locked():
                    continue
                now = time.monotonic()
                if now > obeys_until:
                    obeys_until = math.inf
                    self._on_stuck(False)
                if now > releases_until:
                    releases_until = math.inf
                    if self._is_memory_short(watch):
                        self._on_stuck(True)

    def _wait_until_due(self, watch: duckdb.DuckDBPyConnection) -> None:
        measured_at, most_bytes = 0.0, math.inf
        while not self._cancelled.wait(_LOOK_SECONDS):
            now = time.monotonic()
            if now >= self._ends_at:
                self._timed_out = True
                return
            taken_bytes = self._resident_bytes()
            if self._limits.process_memory_bytes is not None and taken_bytes > self._limits.process_memory_bytes:
                self._on_short()
            elif now >= measured_at + _INTERRUPT_EVERY_SECONDS or taken_bytes > most_bytes:
                if self._is_memory_short(watch):
                    self._on_short()
                measured_at, most_bytes = now, self._resident_bytes() + _LEAST_GROWTH_BYTES

    def _resident_bytes(self) -> int:
        return 0 if self._limits.other_memory_bytes is None else resident_bytes()

    def _is_memory_short(self, watch: duckdb.DuckDBPyConnection) -> bool:
        limits = self._limits
        if limits.store_memory_bytes is None and limits.other_memory_bytes is None:
            return False
        try:
            ((counted, used),) = watch.execute(_MEMORY_IN_USE).fetchall()
        except duckdb.Error:  # mostly for want of memory
            return True
        if limits.store_memory_bytes is not None and used > limits.store_memory_bytes:
            return True
        return limits.other_memory_bytes is not None and resident_bytes() - counted > limits.other_memory_bytes


def resident_bytes() -> int:
    """Return the memory of this process."""
    return int(STATM.read_text().split()[1]) * _PAGE_BYTES


def keep_little_memory() -> None:
    """Have glibc keep no more than a few MiB for each thread that has freed larger ones; it would keep up to 32."""
    adjust = getattr(ctypes.CDLL(None), "mallopt", None)
    if adjust is not None:
        adjust(_M_MMAP_THRESHOLD, 4 * 2**20)
        adjust(_M_ARENA_MAX, _ARENAS)


def return_memory() -> None:
    """Give free memory back to the system: glibc and DuckDB's jemalloc keep it for the threads that allocated it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    control = getattr(ctypes.CDLL(_duckdb.__file__), "duckdb_je_mallctl", None)
    if control is not None:
        control(_PURGE_ALL_ARENAS, None, None, None, 0)


def _to_error(message: str, sql: str) -> GpuAgentError:
    """Return the error for DuckDB's message: its first paragraph, which can hold a `Did you mean`, in our words."""
    words = " ".join(message.split("\n\n")[0].split())
    kind, _, reason = words.partition(" Error: ") if _KIND.match(f"{words} ") else ("", "", words)
    if not reason or _INTERRUPTED in words:
        return MisuseError(_FAILED_MIDWAY)
    if kind == "Out of Memory":
        return QueryMemoryError(f"the query needs more memory than the store may use; {reason}")
    if "Could not read enough bytes" in reason or "Corrupt database file" in reason:
        return StoreError(f"the store is damaged or cut short: {reason}", "`collector check` lists what can be read")
    if match := _NO_COLUMN.fullmatch(reason):
        known = [candidate.rpartition(".")[2] for candidate in re.findall('"(.+?)"', match[2])]
        return MisuseError(f"there is no column {match[1]}; {_hint_at_column(match[1], known, sql)}")
    if match := _NO_COLUMN_OF.fullmatch(reason):
        hint = _hint_at_column(match[2], _columns_of(match[1], sql), sql)
        return MisuseError(f"there is no column {match[2]} in {match[1]}; {hint}")
    return MisuseError(reason[:1].lower() + reason[1:].replace("!", ";" if "Did you" in reason else "."))


def _hint_at_column(name: str, known: Sequence[str], sql: str) -> str:
    """Return how `sql` can ask for a column that is missing: by a similar name of `known`, or elsewhere."""
    hints = []
    if similar := get_close_matches(name.lower(), dict.fromkeys(known)):
        hints.append(f"similar: {', '.join(similar)}")
    if f'"{name}"' in sql:
        text = name.replace("'", "''")
        hints.append(f"a text stands in single quotes: '{text}'")
    elif name in BY_NAME:
        hints.append(f"it is a metric: {_SELECT_METRIC}'{name}'")
    elif not similar and name in _columns()["runs"]:
        hints.append("it is in runs, which is joined by run_id")
    return "; ".join(hints) or "`collector schema TABLE` lists those of a table"


def _columns_of(named: str, sql: str) -> Sequence[str]:
    """Return the columns of a table that `sql` names, by its own name or an alias; none of a part of the statement."""
    tables = re.findall(rf"\b(\w+)\s+(?:AS\s+)?{re.escape(named)}\b", sql, re.IGNORECASE)
    return next((_columns()[table] for table in (named, *map(str.lower, tables)) if table in _columns()), ())


@cache
def _columns() -> dict[str, list[str]]:
    """Return the columns of each table and view."""
    return {table.name: [each.column for each in table.columns] for table in describe_store()}
