"""The one thread that writes the store."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue

import duckdb

from gpuagent_collector.errors import StoreError
from gpuagent_collector.ingest.committer import Committer, Receipt
from gpuagent_collector.ingest.housekeeping import Housekeeping
from gpuagent_collector.ingest.instruments import IngestInstruments
from gpuagent_collector.ingest.messages import Message, Outcome

_LOG = logging.getLogger(__name__)

_TICK_SECONDS = 1.0
_LONGEST_RETRY_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A message in the queue, when it came there, and who waits for it."""

    message: Message
    future: "asyncio.Future[Outcome]"
    queued_seconds: float
    """Monotonic."""


Task = Callable[[], None]
"""Something to do in the writer's thread after what was queued before it."""


class Writer:
    """Takes everything that is queued, commits it as one group, says so, and begins again.

    `done`, `failed` and `out_of_memory` are called in the writer's thread. After `failed` it takes nothing more; after
    `out_of_memory`, which is to make others give memory back, it tries again.
    """

    def __init__(
        self,
        committer: Committer,
        housekeeping: Housekeeping,
        *,
        done: Callable[[Sequence[Entry], Sequence[Outcome]], None],
        failed: Callable[[StoreError], None],
        out_of_memory: Callable[[], None],
        first_retry_seconds: float,
        instruments: IngestInstruments,
    ) -> None:
        self._committer = committer
        self._housekeeping = housekeeping
        self._done = done
        self._failed = failed
        self._out_of_memory = out_of_memory
        self._first_retry_seconds = first_retry_seconds
        self._instruments = instruments
        self._queue: SimpleQueue[Entry | Task] = SimpleQueue()
        self._last = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, item: Entry | Task) -> None:
        """Queue a message or a task."""
        self._queue.put(item)

    def give_up_on_failure(self) -> None:
        """Take the next failure of the store for its end, instead of trying again."""
        self._stopping.set()

    def stop(self) -> None:
        """Commit what is queued and end the thread; give up on a store that fails."""
        self.give_up_on_failure()
        self._queue.put(self._finish)
        self._thread.join()

    def _finish(self) -> None:
        self._last = True

    def _run(self) -> None:
        try:
            self._housekeeping.catch_up()
            while not self._last:
                self._turn()
        except StoreError as error:
            self._failed(error)
        except Exception as error:  # noqa: BLE001 - the collector must stop rather than go on without its writer
            _LOG.exception("the writer stopped")
            self._failed(StoreError(f"the writer stopped: {error}"))

    def _turn(self) -> None:
        items = self._take()
        entries = [item for item in items if isinstance(item, Entry)]
        if entries:
            receipt = self._commit_timed(entries)
            self._done(entries, receipt.outcomes)
            self._housekeeping.summarise(receipt.ended_runs)
        for item in items:
            if not isinstance(item, Entry):
                item()
        self._housekeeping.tick()

    def _take(self) -> list[Entry | Task]:
        items: list[Entry | Task] = []
        with suppress(Empty):
            items.append(self._queue.get(timeout=_TICK_SECONDS))
            while True:
                items.append(self._queue.get_nowait())
        return items

    def _commit_timed(self, entries: Sequence[Entry]) -> Receipt:
        started = time.monotonic()
        receipt = self._commit([entry.message for entry in entries])
        ended = time.monotonic()
        self._instruments.committed(
            receipt, commit_seconds=ended - started, lag_seconds=ended - entries[0].queued_seconds
        )
        return receipt

    def _commit(self, messages: Sequence[Message]) -> Receipt:
        for delay_seconds in _delays(self._first_retry_seconds):
            try:
                return self._committer.commit(messages)
            except duckdb.FatalException as error:
                raise StoreError(f"DuckDB gave the store up: {error}; start the collector again") from error
            except duckdb.Error as error:
                self._instruments.failed()
                if _lacks_memory(error):
                    self._out_of_memory()
                self._housekeeping.catch_up()  # a half of it may be in the store, with ends of runs
                _LOG.warning("cannot write the store; trying again in %g s: %s", delay_seconds, error)
                if self._stopping.wait(delay_seconds):
                    raise StoreError(f"stopped while the store could not be written: {error}") from error
        raise AssertionError("delays never end")


def _lacks_memory(error: duckdb.Error) -> bool:
    """Return whether memory was too small; a commit that could not have it fails as a transaction does."""
    return isinstance(error, duckdb.OutOfMemoryException) or "failed to offload" in str(error)


def _delays(first_seconds: float) -> Iterator[float]:
    delay_seconds = first_seconds
    while True:
        yield delay_seconds
        delay_seconds = min(2 * delay_seconds, _LONGEST_RETRY_SECONDS)
