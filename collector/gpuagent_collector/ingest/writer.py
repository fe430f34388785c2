"""The one thread that writes the store."""

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue

import duckdb

from gpuagent_collector.errors import StoreError
from gpuagent_collector.ingest.committer import Committer, Receipt
from gpuagent_collector.ingest.housekeeping import Housekeeping
from gpuagent_collector.ingest.instruments import IngestInstruments
from gpuagent_collector.ingest.messages import Message, Outcome
from gpuagent_common.backoff import Backoff

_LOG = logging.getLogger(__name__)

_TICK_SECONDS = 1.0
_LONGEST_RETRY_SECONDS = 30.0

# Share of the writer's time for commits while groups are small, and the longest pause for it: most of the cost of such
# a commit is the same for any number of messages. A thousand agents send some five hundred in that time.
_COMMITS_SHARE = 0.2
_LONGEST_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A message in the queue, its time of arrival, and the future of its outcome."""

    message: Message
    future: "asyncio.Future[Outcome]"
    # Monotonic.
    queued_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Sessions to be made ours after all earlier messages, and the receiver of their marks or of the failure."""

    session_ids: Sequence[int]
    answer: Callable[[dict[int, int] | StoreError], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathering:
    """Limits of one group of messages; fewer commits cost a lake's catalog less.

    They bound the memory of a commit, and the time that a stopping collector needs for the last one.
    """

    # From the last commit on, or from the last second without a message.
    seconds: float = 0.0
    # Size of records that ends a group. The queue holds more, so that agents are not slowed by gathering.
    # Some 250,000 rows of GPUs; DuckDB compresses 122,880 at once.
    size_bytes: int = 32 * 1024 * 1024
    # Messages that end a group: a decoded one takes some 10 KiB and the size of its records again.
    messages: int = 4096
    # Messages of one agent that end a group: half of its unacknowledged ones, so that a backlog is not held up.
    messages_of_session: int = 32


class _Gathered:
    """Items taken from the queue for one turn."""

    def __init__(self, gathering: Gathering, pause_seconds: float) -> None:
        self._gathering = gathering
        self._patience_seconds = max(gathering.seconds, pause_seconds)
        self._of_session: Counter[int] = Counter()
        self._most_of_session = 0
        self._size_bytes = 0
        self._since_seconds = time.monotonic()
        self.entries: list[Entry] = []
        self.claims: list[Claim] = []
        self.ends = False

    def add(self, item: "Entry | Claim | None") -> None:
        if isinstance(item, Entry):
            self.entries.append(item)
            self._of_session[item.message.session_id] += 1
            self._most_of_session = max(self._most_of_session, self._of_session[item.message.session_id])
            self._size_bytes += len(item.message.records)
        elif isinstance(item, Claim):
            self.claims.append(item)
        else:
            self.ends = True

    @property
    def is_full(self) -> bool:
        """True when nothing more may be added."""
        return self._size_bytes >= self._gathering.size_bytes or len(self.entries) >= self._gathering.messages

    def seconds_left(self, tick_seconds: float) -> float:
        """Return the time left for gathering: a claim or the end does not wait."""
        if self.claims or self.ends or self.is_full:
            return 0.0
        if self._most_of_session >= self._gathering.messages_of_session:
            return 0.0
        patience_seconds = self._patience_seconds if self.entries else tick_seconds
        return self._since_seconds + patience_seconds - time.monotonic()


@dataclass(kw_only=True)
class Writer:
    """A thread that takes queued messages, commits them as one group, and reports the outcomes.

    `done`, `failed`, `out_of_memory` and `troubled` are called in the writer's thread. `failed` ends it. After
    `out_of_memory`, which makes others release memory, it retries. `troubled` follows each change of `trouble`.
    """

    committer: Committer
    housekeeping: Housekeeping
    done: Callable[[Sequence[Entry], Sequence[Outcome]], None]
    failed: Callable[[StoreError], None]
    out_of_memory: Callable[[], None]
    troubled: Callable[[], None]
    gathering: Gathering
    first_retry_seconds: float
    instruments: IngestInstruments

    def __post_init__(self) -> None:
        self._queue: SimpleQueue[Entry | Claim | None] = SimpleQueue()
        self._last = False
        # Time for gathering after the last commit.
        self._pause_seconds = 0.0
        self._stopping = threading.Event()
        self._abandoned = threading.Event()
        # Why the last commit failed, for people; empty: it did not.
        self.trouble = ""
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, item: Entry | Claim) -> None:
        """Queue a message or a claim."""
        self._queue.put(item)

    def give_up_on_failure(self) -> None:
        """Stop at the next failure of the store, instead of retrying."""
        self._stopping.set()

    def abandon(self) -> None:
        """Begin no further group."""
        self._abandoned.set()

    def stop(self) -> None:
        """Commit queued messages, unless abandoned, and end the thread; give up on a store that fails."""
        self.give_up_on_failure()
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            self.housekeeping.catch_up()
            while not (self._last or self._abandoned.is_set()):
                self._turn()
        except StoreError as error:
            self.failed(error)
        except Exception as error:  # noqa: BLE001 - the collector must not go on without its writer
            _LOG.exception("the writer stopped")
            self.failed(StoreError(f"the writer stopped: {error}"))

    def _turn(self) -> None:
        gathered = self._take()
        if gathered.entries:
            started = time.monotonic()
            receipt = self._commit([entry.message for entry in gathered.entries])
            ended = time.monotonic()
            self._pause_seconds = min((ended - started) * (1 / _COMMITS_SHARE - 1), _LONGEST_PAUSE_SECONDS)
            self.instruments.committed(
                receipt, commit_seconds=ended - started, lag_seconds=ended - gathered.entries[0].queued_seconds
            )
            # Before the acknowledgement, so that a command which ends with it has left runs that can be compared.
            if receipt.ended_runs:
                self.housekeeping.summarise(receipt.ended_runs)
            self.done(gathered.entries, receipt.outcomes)
        if gathered.claims:
            self._claim(gathered.claims)
        self._last = gathered.ends
        self.housekeeping.tick()

    def _take(self) -> _Gathered:
        gathered = _Gathered(self.gathering, self._pause_seconds)
        while (seconds := gathered.seconds_left(_TICK_SECONDS)) > 0 and not (
            gathered.entries and self._stopping.is_set()
        ):
            with suppress(Empty):
                gathered.add(self._queue.get(timeout=min(seconds, _TICK_SECONDS)))
        with suppress(Empty):
            while not (gathered.is_full or gathered.ends):
                gathered.add(self._queue.get_nowait())
        return gathered

    def _claim(self, claims: Sequence[Claim]) -> None:
        """Make all these sessions ours in one transaction, because many agents come at once after a takeover."""
        try:
            marks = self.committer.claim({session_id for claim in claims for session_id in claim.session_ids})
        except duckdb.FatalException as error:
            raise _unusable(error) from error
        except duckdb.Error as error:
            self.housekeeping.store_failed()
            failure = StoreError(f"cannot read the store: {error}")
            for claim in claims:
                claim.answer(failure)
            return
        for claim in claims:
            claim.answer({each: marks[each] for each in claim.session_ids if each in marks})

    def _commit(self, messages: Sequence[Message]) -> Receipt:
        backoff = Backoff(first_seconds=self.first_retry_seconds, longest_seconds=_LONGEST_RETRY_SECONDS)
        while True:
            try:
                receipt = self.committer.commit(messages)
                self._set_trouble("")
                return receipt
            except duckdb.FatalException as error:
                raise _unusable(error) from error
            except duckdb.Error as error:
                self.instruments.failed()
                self._set_trouble(describe_trouble(str(error)))
                # A commit that lacks memory fails as a transaction.
                if isinstance(error, duckdb.OutOfMemoryException) or "failed to offload" in str(error):
                    self.out_of_memory()
                self.housekeeping.store_failed()  # half of the group may be stored, with ends of runs
                delay_seconds = backoff.next_delay_seconds()
                _LOG.warning("cannot write the store; retrying in %g s: %s", delay_seconds, error)
                if self._stopping.wait(delay_seconds):
                    raise StoreError(f"stopped while the store could not be written: {error}") from error

    def _set_trouble(self, trouble: str) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            self.troubled()


def describe_trouble(message: str) -> str:
    """Return in one line why a commit failed with DuckDB's message, and what it means."""
    reason = "the disk is full" if "No space left" in message else message.splitlines()[0][:100]
    return f"nothing is stored: {reason}; agents keep their data and send it later"


def _unusable(error: duckdb.FatalException) -> StoreError:
    return StoreError(f"DuckDB closed the store: {error}; restart the collector")
