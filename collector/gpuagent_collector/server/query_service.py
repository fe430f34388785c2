"""The query service, which never blocks the agents on the same event loop, and the turns of viewers' statements."""

import asyncio
import io
import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from traceback import clear_frames
from typing import TypeVar

import grpc
import pyarrow as pa

from gpuagent_collector.query.execute import (
    BATCH_ROWS,
    STATM,
    Execution,
    Limits,
    Parameter,
    QueryCancelledError,
    QueryMemoryError,
    QueryTimeoutError,
    resident_bytes,
    return_memory,
)
from gpuagent_collector.query.guard import MAX_TOKENS
from gpuagent_collector.query.visible_parts import Parts
from gpuagent_collector.trust.tokens import Caller, Scope
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_proto.v1 import query_service_pb2 as pb
from gpuagent_proto.v1 import query_service_pb2_grpc as pb_grpc

# Of what a step makes, where a statement runs on several threads: 1.9 measured for an answer on its way to its reader,
# 1.3 for all else.
_COPIES = 2

# A statement of at most this share of the memory never waits.
_SMALL_SHARE = 1 / 16

_LOOK_SECONDS = 0.05


@dataclass(slots=True, kw_only=True)
class Turns:
    """Memory that statements share. Any thread may use it.

    Attributes:
        memory_bytes: of all statements at once; None: without a limit.
        threads: DuckDB's.
    """

    memory_bytes: int | None = None
    threads: int = 1
    _changed: threading.Condition = field(default_factory=threading.Condition)
    # What those that run may take, and those that wait, first come first, with their holders.
    _taken: dict[Execution, tuple[Hashable, int]] = field(default_factory=dict)
    _waiting: dict[Execution, Hashable] = field(default_factory=dict)
    # Holders by their last turn. There is one for each token.
    _last: dict[Hashable, None] = field(default_factory=dict)

    def wait(self, execution: Execution, holder: Hashable, row_bytes: int | None) -> None:
        """Wait until there is memory for a statement that makes this of a row (None: all); `end` gives it back.

        Of several holders, the one that has least comes first, and of those the one whose last turn is longest ago.

        Raises:
            MisuseError: there never is.
            GpuAgentError: the execution must stop; see `Execution.check`.
        """
        needed = self.memory_bytes or 0
        if row_bytes is not None:
            needed = row_bytes * BATCH_ROWS * self.threads * _COPIES
        with self._changed:
            if self.memory_bytes is not None and needed > self.memory_bytes:
                raise MisuseError(
                    f"2,048 rows of this statement can take {needed / 2**20:,.0f} MiB, and the collector has "
                    f"{max(0, self.memory_bytes) / 2**20:,.0f} MiB for it; ask for shorter or fewer values"
                )
            self._waiting[execution] = holder
            try:
                while not self._may_start(execution, needed):
                    self._changed.wait(_LOOK_SECONDS)
                    execution.check()
                execution.check()  # one that has ended meanwhile would keep its turn
                self._taken[execution] = (holder, needed)
                if not self._is_small(needed):
                    self._last.pop(holder, None)
                    self._last[holder] = None
            finally:
                del self._waiting[execution]
                self._changed.notify_all()

    def end(self, execution: Execution) -> None:
        """Give the memory of a statement back, if it has any."""
        with self._changed:
            self._taken.pop(execution, None)
            self._changed.notify_all()

    def largest(self) -> Execution | None:
        """Return the statement that may take most now; None: only small ones run."""
        with self._changed:
            taken = {execution: needed for execution, (_, needed) in self._taken.items() if not self._is_small(needed)}
            return max(taken, key=lambda each: taken[each], default=None)

    def is_large(self, execution: Execution) -> bool:
        """Return whether a statement runs that may take more than a small share."""
        with self._changed:
            return execution in self._taken and not self._is_small(self._taken[execution][1])

    def _is_small(self, needed: int) -> bool:
        return self.memory_bytes is None or needed <= self.memory_bytes * _SMALL_SHARE

    def _may_start(self, execution: Execution, needed: int) -> bool:
        if self.memory_bytes is None or self._is_small(needed):
            return True
        places = {holder: place for place, holder in enumerate(self._last)}
        held: Counter[Hashable] = Counter()
        for holder, taken in self._taken.values():
            held[holder] += taken
        order = {each: (held[holder], places.get(holder, -1)) for each, holder in self._waiting.items()}
        first = min(order, key=lambda each: order[each])
        return execution is first and needed + held.total() <= self.memory_bytes


CHUNK_BYTES = 1024 * 1024
DEFAULT_LIMITS = Limits(timeout_seconds=120.0, rows=1_000_000, size_bytes=2**30)
# Queries at once, including abandoned ones that have not stopped. They share DuckDB's own threads, one a core. No token
# holds more than a quarter, so while three tokens hold all that they may, others find as many places.
MAX_QUERIES = 16
MAX_QUERIES_OF_A_TOKEN = MAX_QUERIES // 4

# Of free memory that is kept for the next queries.
_KEPT_BYTES = 16 * 2**20

# A query waits this long for places that are about to be free.
_CLOSING_SECONDS = 10.0
_FREEING_SECONDS = 0.5

_CODES: tuple[tuple[type[GpuAgentError], grpc.StatusCode], ...] = (
    (MisuseError, grpc.StatusCode.INVALID_ARGUMENT),
    (QueryTimeoutError, grpc.StatusCode.DEADLINE_EXCEEDED),
    (QueryMemoryError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (QueryCancelledError, grpc.StatusCode.CANCELLED),
)

Result = TypeVar("Result")
# A token's name, and whether it is the owner's.
_Holder = tuple[str, bool]
Context = grpc.aio.ServicerContext[pb.QueryRequest, pb.QueryResponse]


@dataclass(eq=False)
class QueryService(pb_grpc.QueryServiceServicer):
    """A service that executes queries of authorised callers."""

    parts: Parts
    # The store's name for people.
    source: str
    # Returns the current caller.
    caller: Callable[[], Caller]
    limits: Limits = DEFAULT_LIMITS
    turns: Turns = field(default_factory=Turns)
    # Returns why nothing can be stored now; empty: everything can.
    trouble: Callable[[], str] = str
    # Called with every query.
    on_query: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        # A query that does not stop holds two threads: one works, one waits to close it.
        self._threads = ThreadPoolExecutor(2 * MAX_QUERIES, thread_name_prefix="query")
        # With the holder of each.
        self._executions: dict[Execution, _Holder] = {}
        self._closing: dict[Execution, asyncio.Future[None]] = {}
        # Queries that run or wait for a place, not those that were abandoned.
        self._asking: Counter[_Holder] = Counter()
        # The least memory of the process since free memory was given back.
        self._least_bytes = 0
        # Until then, memory that is short has time to get free.
        self._freeing_until = 0.0
        self._freeing = threading.Lock()
        # Checking is work in Python, of which one token must not have several at once.
        self._checking: defaultdict[_Holder, threading.Lock] = defaultdict(threading.Lock)
        # Set, with the reason, when a query can be ended only with the process.
        self.stuck: asyncio.Future[str] = asyncio.get_event_loop().create_future()

    async def Query(self, request: pb.QueryRequest, context: Context) -> AsyncIterator[pb.QueryResponse]:  # noqa: N802
        """Stream the answer as one Arrow IPC stream, cut into messages."""
        caller = self.caller()
        holder = _holder(caller)
        self._asking[holder] += 1
        try:
            if not await self._find_place(holder):
                held = self._held(holder)
                await context.abort(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"{len(self._executions)} queries are running already, {held} of this token; try again later",
                )
            async with aclosing(self._answer(request, context, caller)) as responses:
                async for response in responses:
                    yield response
        finally:
            self._asking[holder] -= 1
            if not self._asking[holder]:
                del self._asking[holder]

    async def _find_place(self, holder: _Holder) -> bool:
        """Return whether there is a place for this query; wait while abandoned ones end that hold it."""
        ends_at = time.monotonic() + _CLOSING_SECONDS
        while self._asking[holder] <= MAX_QUERIES_OF_A_TOKEN:
            has_own = self._held(holder) < MAX_QUERIES_OF_A_TOKEN
            if has_own and len(self._executions) < MAX_QUERIES:
                return True
            closing = [
                ended for execution, ended in self._closing.items() if has_own or self._executions[execution] == holder
            ]
            if not closing or time.monotonic() >= ends_at:
                return False
            await asyncio.wait(closing, timeout=ends_at - time.monotonic(), return_when=asyncio.FIRST_COMPLETED)
        return False

    def _held(self, holder: _Holder) -> int:
        return sum(each == holder for each in self._executions.values())

    async def _answer(
        self, request: pb.QueryRequest, context: Context, caller: Caller
    ) -> AsyncGenerator[pb.QueryResponse, None]:
        holder = _holder(caller)
        self.on_query()
        reach = caller.reach
        own, asked = self.limits.timeout_seconds, request.timeout_seconds
        times = [seconds for seconds in (own, asked if asked > 0 else None) if seconds is not None]
        limits = replace(self.limits, timeout_seconds=min(times, default=None))
        loop = asyncio.get_running_loop()
        is_bounded = threading.Event()

        def give_up() -> None:
            if not self.stuck.done():
                self.stuck.set_result(f"a query of {caller.name} does not end")

        def on_stuck(memory_is_short: bool) -> None:
            # A bounded statement that goes on only scans a table: it takes no memory, and no other token's place.
            if memory_is_short or not is_bounded.is_set():
                with suppress(RuntimeError):  # the collector has stopped
                    loop.call_soon_threadsafe(give_up)

        execution = Execution(
            lambda: self.parts.of(reach).connect(),
            limits,
            on_short=self.free_memory,  # by way of the loop it would wait for the samples of agents
            on_stuck=on_stuck,
        )
        self._executions[execution] = holder
        context.add_done_callback(lambda _: execution.cancel())  # type: ignore[arg-type] # stubs want their own class
        try:
            chunks = await self._in_thread(partial(self._start, execution, request, caller, is_bounded))
            while chunk := await self._in_thread(partial(next, chunks, b"")):
                yield pb.QueryResponse(arrow_ipc=chunk)
            part = str(reach) if reach else ""
            yield pb.QueryResponse(source=self.source, truncated=execution.truncated, part=part, trouble=self.trouble())
        except GpuAgentError as error:
            code = next((code for kind, code in _CODES if isinstance(error, kind)), grpc.StatusCode.INTERNAL)
            clear_frames(error.__traceback__)  # they would keep rows until the next collection of garbage
            await context.abort(code, str(error))
        finally:
            self._end(execution)

    def evict(self) -> None:
        """Stop the running queries, because the store needs the memory."""
        for execution in self._executions:
            execution.evict()

    async def close(self, wait_seconds: float) -> bool:
        """Release the queries after the server has ended their calls; return whether they stopped within this time.

        Some of DuckDB's functions ignore an interrupt. Then only `os._exit` ends the process.
        """
        for execution in tuple(self._executions):
            self._end(execution)
        if self._closing:
            await asyncio.wait(self._closing.values(), timeout=wait_seconds)
        self._threads.shutdown(wait=False, cancel_futures=True)
        return not self._closing

    def _end(self, execution: Execution) -> None:
        """Release a query without waiting for it to stop, unless `close` has done so."""
        if execution in self._executions and execution not in self._closing:
            execution.cancel()
            closing = self._closing[execution] = asyncio.ensure_future(self._in_thread(partial(self._close, execution)))

            def forget(_: object) -> None:
                del self._closing[execution]
                del self._executions[execution]
                self.turns.end(execution)

            closing.add_done_callback(forget)

    def _close(self, execution: Execution) -> None:
        execution.close()
        self._return_memory()
        if self.turns.is_large(execution):
            self._freeing_until = 0.0  # the next such query gets no such time

    def _return_memory(self) -> None:
        """Give free memory back where the process has grown: that takes longer than most queries."""
        taken_bytes = resident_bytes() if STATM.exists() else None
        if taken_bytes is None:
            return_memory()
        elif taken_bytes > self._least_bytes + _KEPT_BYTES:
            return_memory()
            self._least_bytes = resident_bytes()
        else:
            self._least_bytes = min(self._least_bytes, taken_bytes)

    def _start(
        self, execution: Execution, request: pb.QueryRequest, caller: Caller, is_bounded: threading.Event
    ) -> Iterator[bytes]:
        part = self.parts.of(caller.reach)
        with self._checking[_holder(caller)]:
            statement, parameters = part.guard.read(request.sql), _parameters(request.parameters_json)
            longest = part.growth.longest.all()
            try:
                row_bytes = part.growth.check(statement.tree, parameters)
                is_bounded.set()
            except MisuseError:
                if caller.scope is Scope.VIEWER:
                    raise
        if caller.scope is Scope.VIEWER:
            self.turns.wait(execution, _holder(caller), row_bytes)
            # Longer texts may have been stored while it waited.
            while longest is not part.growth.longest.all():
                longest = part.growth.longest.all()
                self.turns.end(execution)
                self.turns.wait(execution, _holder(caller), part.growth.check(statement.tree, parameters))
        return ipc_chunks(execution.start(statement.sql, parameters))

    def free_memory(self) -> None:
        """Stop all queries of the token whose query may take most; without one, of the token that has most of them.

        Any thread may call it.
        """
        executions = self._executions.copy()
        largest = self.turns.largest()
        with self._freeing:
            now = time.monotonic()
            # A large one that nobody has stopped yet takes more in that time than there is.
            is_growing = largest is not None and not largest.is_evicted
            if not executions or (now < self._freeing_until and not is_growing):
                return
            self._freeing_until = now + _FREEING_SECONDS
        count = Counter(executions.values())
        most = max(count, key=lambda holder: count[holder])
        if largest in executions:
            most = executions[largest]
        for execution, holder in executions.items():
            if holder == most:
                execution.evict()

    def _in_thread(self, work: Callable[[], Result]) -> Awaitable[Result]:
        return asyncio.get_running_loop().run_in_executor(self._threads, work)


def _holder(caller: Caller) -> _Holder:
    return caller.name, caller.token is None


def ipc_chunks(rows: pa.RecordBatchReader) -> Iterator[bytes]:
    """Yield `rows` as consecutive bytes of one Arrow IPC stream, no piece larger than CHUNK_BYTES."""
    buffer = io.BytesIO()

    def drain() -> Iterator[bytes]:
        written = buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
        for start in range(0, len(written), CHUNK_BYTES):
            yield written[start : start + CHUNK_BYTES]

    with pa.ipc.new_stream(buffer, rows.schema) as writer:
        for batch in rows:
            # Writing copies a piece.
            rows_at_once = max(1, batch.num_rows * CHUNK_BYTES // max(1, batch.nbytes))
            for start in range(0, batch.num_rows, rows_at_once):
                writer.write_batch(batch.slice(start, rows_at_once))
                yield from drain()
            del batch  # see Execution
    yield from drain()


def _parameters(text: str) -> Sequence[Parameter]:
    """Raise MisuseError when `text` is not a JSON array of strings, numbers, booleans, nulls and lists of these."""
    try:
        values = json.loads(text) if text else []
        json.dumps(values, ensure_ascii=False).encode()  # JSON can write half a character, which is no text
    except (ValueError, RecursionError) as error:
        raise MisuseError(f"the parameters are not JSON: {error}") from error
    listed = values if isinstance(values, list) else [{}]
    scalars = [each for value in listed for each in (value if isinstance(value, list) else [value])]
    if any(isinstance(scalar, list | dict) for scalar in scalars):
        raise MisuseError("the parameters are not a JSON array of strings, numbers, booleans, nulls and lists of these")
    if len(listed) > MAX_TOKENS:  # DuckDB would name each that is too many
        raise MisuseError(f"{len(listed):,} parameters, more than a statement has tokens; give a list as one parameter")
    return listed
