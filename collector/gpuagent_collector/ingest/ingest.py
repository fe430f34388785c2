"""The store's input for the server's event loop."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import duckdb

from gpuagent_collector.errors import StoreError
from gpuagent_collector.ingest.committer import Committer
from gpuagent_collector.ingest.housekeeping import Housekeeping, Intervals, Summarize
from gpuagent_collector.ingest.instruments import IngestInstruments
from gpuagent_collector.ingest.messages import Message, Outcome
from gpuagent_collector.ingest.ownership import Duty, ownership_of
from gpuagent_collector.ingest.presence import Presence
from gpuagent_collector.ingest.writer import Claim, Entry, Gathering, Writer
from gpuagent_collector.store import Store
from gpuagent_collector.store.instance import explain
from gpuagent_collector.store.retention import Retention
from gpuagent_collector.times import utc_now

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSettings:
    """Limits and delays of ingest."""

    # Records waiting for the writer; beyond this `submit` waits.
    queue_limit_bytes: int = 128 * 1024 * 1024
    gathering: Gathering = field(default_factory=Gathering)
    # Pause after the first failed commit; it doubles with each further one.
    first_retry_seconds: float = 0.5
    intervals: Intervals = field(default_factory=Intervals)
    retention: Retention = field(default_factory=Retention)


@dataclass(kw_only=True)
class Ingest:
    """A queue of messages for the writer's thread, with their outcomes. It belongs to one event loop."""

    store: Store
    summarize: Summarize
    settings: IngestSettings = field(default_factory=IngestSettings)
    # Called in the event loop when the writer lacks memory, so that queries release theirs.
    out_of_memory: Callable[[], None] = lambda: None
    now: Callable[[], datetime] = utc_now
    # Records that wait for the writer.
    queued_bytes: int = field(default=0, init=False)
    # Wait of the last group's oldest message for its commit, beyond the time of gathering.
    lag_seconds: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        """Prepare; nothing runs before `start`. Raises StoreError where the store cannot be read."""
        self.presence = Presence(self.now)
        self.instruments = IngestInstruments(
            queued_bytes=lambda: self.queued_bytes, queue_limit_bytes=self.settings.queue_limit_bytes
        )
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Event()
        self._waiting: set[asyncio.Future[Outcome]] = set()
        # Called in the loop when `trouble` has changed.
        self.on_trouble: Callable[[], None] = lambda: None
        # Done, with the reason, when the writer has stopped because the store is unusable.
        self.failed: asyncio.Future[StoreError] = self._loop.create_future()
        self._connection = self.store.connect()
        try:
            ownership = ownership_of(self.store.spec, self._connection, now=self.now)
            committer = Committer(
                self._connection, now=self.now, ownership=ownership, longest_texts=self.store.longest_texts
            )
        except duckdb.Error as error:
            raise StoreError(*explain(self.store.spec, str(error), read_only=False)) from error

        def fail(error: StoreError) -> None:
            _resolve(self.failed, error)
            for future in self._waiting:
                future.cancel()
            self._room.set()

        self._writer = Writer(
            committer=committer,
            housekeeping=Housekeeping(
                store=self.store,
                connection=self._connection,
                duty=Duty(self._connection, ownership),
                presence=self.presence,
                summarize=self.summarize,
                now=self.now,
                intervals=self.settings.intervals,
                retention=self.settings.retention,
            ),
            done=lambda entries, outcomes: self._call(self._done, entries, outcomes),
            failed=lambda error: self._call(fail, error),
            out_of_memory=lambda: self._call(self.out_of_memory),
            troubled=lambda: self._call(self.on_trouble),
            gathering=self.settings.gathering,
            first_retry_seconds=self.settings.first_retry_seconds,
            instruments=self.instruments,
        )

    @property
    def trouble(self) -> str:
        """Why nothing can be stored now, for people; empty: the last commit succeeded."""
        return self._writer.trouble

    def start(self) -> None:
        """Start the writer's thread."""
        self._writer.start()

    async def submit(self, message: Message) -> "asyncio.Future[Outcome]":
        """Queue a message as soon as there is room, and return the future of its outcome.

        The future is cancelled when the writer stops before the message is committed. Raises StoreError: the writer has
        stopped.
        """
        size_bytes = len(message.records)
        # A message larger than the limit is taken when it is alone.
        while self.queued_bytes and not self.failed.done():
            if self.queued_bytes + size_bytes <= self.settings.queue_limit_bytes:
                break
            self._room.clear()
            await self._room.wait()
        if self.failed.done():
            raise self.failed.result()
        self.queued_bytes += size_bytes
        entry = Entry(message=message, future=self._loop.create_future(), queued_seconds=time.monotonic())
        self._waiting.add(entry.future)
        self._writer.put(entry)
        return entry.future

    async def settled_marks(self, session_ids: Iterable[int]) -> dict[int, int]:
        """Make these sessions ours after all queued messages are done; return their highest committed numbers.

        Raises StoreError: the store cannot be read now, or the writer has stopped.
        """
        marks: asyncio.Future[dict[int, int] | StoreError] = self._loop.create_future()
        self._writer.put(
            Claim(session_ids=tuple(session_ids), answer=lambda answer: self._call(_resolve, marks, answer))
        )
        either: set[asyncio.Future[Any]] = {marks, self.failed}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not marks.done():
            raise self.failed.result()
        answer = marks.result()
        if isinstance(answer, StoreError):
            raise answer
        return answer

    def give_up_on_failure(self) -> None:
        """From now on, cancel waiting messages when the store fails, instead of retrying."""
        self._writer.give_up_on_failure()

    def abandon(self) -> None:
        """Begin no further commit: `close` cancels queued messages, which their agents still have."""
        self._writer.abandon()

    async def close(self) -> None:
        """Commit queued messages, unless abandoned, and stop the writer."""
        await asyncio.to_thread(self._writer.stop)
        for future in self._waiting:
            future.cancel()
        self._connection.close()

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nothing waits any more
            self._loop.call_soon_threadsafe(function, *arguments)

    def _done(self, entries: Sequence[Entry], outcomes: Sequence[Outcome]) -> None:
        waited_seconds = time.monotonic() - min(entry.queued_seconds for entry in entries)
        self.lag_seconds = max(0.0, waited_seconds - self.settings.gathering.seconds)
        for entry, outcome in zip(entries, outcomes, strict=True):
            self.queued_bytes -= len(entry.message.records)
            self._waiting.discard(entry.future)
            _resolve(entry.future, outcome)
        self._room.set()


def _resolve(future: "asyncio.Future[Result]", value: Result) -> None:
    if not future.done():
        future.set_result(value)
