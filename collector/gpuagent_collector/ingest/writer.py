"""The one thread that writes the store."""

import asyncio
import logging
import threading
import time
from collections import Counter
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
    # Monotonic.
    queued_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Sessions to be made ours after what was queued before, and who is told their marks, or why not."""

    session_ids: Sequence[int]
    answer: Callable[[dict[int, int] | StoreError], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathering:
    """How much comes together before it is committed: on a lake every commit costs its catalog something."""

    # From the first message on.
    seconds: float = 0.0
    # Records that are enough at once. The queue takes more, so that agents need not be slowed for it.
    size_bytes: int = 16 * 1024 * 1024
    # Messages of one agent that are enough at once: half of what it sends without an acknowledgement, so that one
    # that has much to catch up with is not held up.
    messages_of_session: int = 32


class _Gathered:
    """What was taken from the queue for one turn."""

    def __init__(self, gathering: Gathering) -> None:
        self._gathering = gathering
        self._of_session: Counter[int] = Counter()
        self._size_bytes = 0
        self._since_seconds = time.monotonic()
        self.entries: list[Entry] = []
        self.claims: list[Claim] = []
        self.ends = False

    def add(self, item: "Entry | Claim | None") -> None:
        if isinstance(item, Entry):
            self.entries.append(item)
            self._of_session[item.message.session_id] += 1
            self._size_bytes += len(item.message.records)
        elif isinstance(item, Claim):
            self.claims.append(item)
        else:
            self.ends = True

    def seconds_left(self, tick_seconds: float) -> float:
        """Return how long more may come: what asks for marks, or for the end, waits for nobody."""
        if self.claims or self.ends or self._is_enough():
            return 0.0
        patience_seconds = self._gathering.seconds if self.entries else tick_seconds
        return self._since_seconds + patience_seconds - time.monotonic()

    def _is_enough(self) -> bool:
        most = max(self._of_session.values(), default=0)
        return self._size_bytes >= self._gathering.size_bytes or most >= self._gathering.messages_of_session


class Writer:
    """Takes what is queued, commits it as one group, says so, and begins again.

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
        gathering: Gathering,
        first_retry_seconds: float,
        instruments: IngestInstruments,
    ) -> None:
        self._committer = committer
        self._housekeeping = housekeeping
        self._done = done
        self._failed = failed
        self._out_of_memory = out_of_memory
        self._gathering = gathering
        self._first_retry_seconds = first_retry_seconds
        self._instruments = instruments
        self._queue: SimpleQueue[Entry | Claim | None] = SimpleQueue()
        self._last = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, item: Entry | Claim) -> None:
        """Queue a message or a claim."""
        self._queue.put(item)

    def give_up_on_failure(self) -> None:
        """Take the next failure of the store for its end, instead of trying again."""
        self._stopping.set()

    def stop(self) -> None:
        """Commit what is queued and end the thread; give up on a store that fails."""
        self.give_up_on_failure()
        self._queue.put(None)
        self._thread.join()

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
        gathered = self._take()
        if gathered.entries:
            receipt = self._commit_timed(gathered.entries)
            self._done(gathered.entries, receipt.outcomes)
            self._housekeeping.summarise(receipt.ended_runs)
        if gathered.claims:
            self._claim(gathered.claims)
        self._last = gathered.ends
        self._housekeeping.tick()

    def _take(self) -> _Gathered:
        gathered = _Gathered(self._gathering)
        while (seconds := gathered.seconds_left(_TICK_SECONDS)) > 0 and not (
            gathered.entries and self._stopping.is_set()
        ):
            with suppress(Empty):
                gathered.add(self._queue.get(timeout=min(seconds, _TICK_SECONDS)))
        with suppress(Empty):
            while True:
                gathered.add(self._queue.get_nowait())
        return gathered

    def _claim(self, claims: Sequence[Claim]) -> None:
        """Make all these sessions ours in one transaction: agents come in crowds when another collector has gone."""
        try:
            marks = self._committer.claim({session_id for claim in claims for session_id in claim.session_ids})
        except duckdb.FatalException as error:
            raise _beyond_help(error) from error
        except duckdb.Error as error:
            self._housekeeping.store_failed()
            failure = StoreError(f"cannot read the store: {error}")
            for claim in claims:
                claim.answer(failure)
            return
        for claim in claims:
            claim.answer({each: marks[each] for each in claim.session_ids if each in marks})

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
                raise _beyond_help(error) from error
            except duckdb.Error as error:
                self._instruments.failed()
                if _lacks_memory(error):
                    self._out_of_memory()
                self._housekeeping.store_failed()  # a half of it may be in the store, with ends of runs
                _LOG.warning("cannot write the store; trying again in %g s: %s", delay_seconds, error)
                if self._stopping.wait(delay_seconds):
                    raise StoreError(f"stopped while the store could not be written: {error}") from error
        raise AssertionError("delays never end")


def _beyond_help(error: duckdb.FatalException) -> StoreError:
    return StoreError(f"DuckDB gave the store up: {error}; start the collector again")


def _lacks_memory(error: duckdb.Error) -> bool:
    """Return whether memory was too small; a commit that could not have it fails as a transaction does."""
    return isinstance(error, duckdb.OutOfMemoryException) or "failed to offload" in str(error)


def _delays(first_seconds: float) -> Iterator[float]:
    delay_seconds = first_seconds
    while True:
        yield delay_seconds
        delay_seconds = min(2 * delay_seconds, _LONGEST_RETRY_SECONDS)
