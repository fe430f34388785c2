import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import duckdb
import pytest

from gpuagent.sampling.rows import encode_records
from gpuagent_collector.errors import StoreError
from gpuagent_collector.ingest import writer
from gpuagent_collector.ingest.housekeeping import Intervals
from gpuagent_collector.ingest.ingest import Ingest, IngestSettings
from gpuagent_collector.ingest.messages import Message, Verdict
from gpuagent_collector.ingest.writer import Claim, Entry, Gathering
from gpuagent_collector.store import Store
from tests.unit.collector_store.conftest import ON_BOTH_KINDS
from tests.unit.collector_store.faults import failing


class Summaries:
    """Stands for the computation of run figures: remembers what it was asked for."""

    def __init__(self) -> None:
        self.run_ids: list[str] = []
        self.error: Exception | None = None

    def __call__(self, connection: duckdb.DuckDBPyConnection, run_ids: Sequence[str], computed_at: datetime) -> None:
        self.run_ids += run_ids
        connection.executemany(
            "INSERT INTO run_metrics (run_id, computed_at, metric, value) VALUES (?, ?, 'm', 1)",
            [(run_id, computed_at) for run_id in run_ids],
        )
        if self.error is not None:
            raise self.error


def message(number: int, tables: dict[str, list[dict[str, Any]]] | None = None) -> Message:
    rows = tables or {"core_samples": [{"core": number}]}
    return Message(session_id=1, node_id=2, number=number, records=encode_records(rows))


def run_message(number: int, run_id: str, status: str) -> Message:
    tables: dict[str, list[dict[str, Any]]] = {
        "run_requests": [{"run_id": run_id, "time": number}],
        "run_states": [{"run_id": run_id, "status": status, "time": number}],
    }
    return message(number, tables)


@asynccontextmanager
async def running(
    store: Store,
    summarize: Summaries | None = None,
    settings: IngestSettings = IngestSettings(),  # noqa: B008 - frozen
) -> AsyncIterator[Ingest]:
    ingest = Ingest(store=store, summarize=summarize or Summaries(), settings=settings)
    ingest.start()
    yield ingest
    await ingest.close()


def count(store: Store, table: str) -> int:
    return int(ask(store, f'SELECT count(*) FROM "{table}"')[0][0])


def ask(store: Store, sql: str) -> list[tuple[Any, ...]]:
    with store.connect() as connection:
        return connection.execute(sql).fetchall()


async def test_an_outcome_arrives_after_the_commit(store: Store) -> None:
    async with running(store) as ingest:
        outcome = await (await ingest.submit(message(1)))
        assert outcome.verdict is Verdict.COMMITTED
        assert count(store, "core_samples") == 1
        assert ingest.queued_bytes == 0


async def test_marks_are_told_after_what_is_queued_is_done(store: Store) -> None:
    async with running(store) as ingest:
        futures = [await ingest.submit(message(number)) for number in range(1, 6)]
        assert await ingest.settled_marks([1, 3]) == {1: 5}
        assert all(future.done() for future in futures)


async def test_closing_commits_what_is_queued(store: Store) -> None:
    async with running(store) as ingest:
        futures = [await ingest.submit(message(number)) for number in range(1, 101)]
    assert [(await future).verdict for future in futures] == [Verdict.COMMITTED] * 100
    assert count(store, "core_samples") == 100


@pytest.mark.parametrize("limit", ["messages", "size_bytes"])
async def test_a_long_queue_is_committed_in_groups_of_a_limited_size(store: Store, limit: str) -> None:
    gathering = Gathering(messages=2) if limit == "messages" else Gathering(size_bytes=2 * len(message(1).records))
    ingest = Ingest(store=store, summarize=Summaries(), settings=IngestSettings(gathering=gathering))
    futures = [await ingest.submit(message(number)) for number in range(1, 6)]
    ingest.start()
    await ingest.close()
    assert [(await future).verdict for future in futures] == [Verdict.COMMITTED] * 5
    assert ask(store, "SELECT count(*) FROM marks") == [(3,)]


async def test_after_a_commit_messages_wait_for_others_until_a_claim(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_COMMITS_SHARE", 1e-9)
    monkeypatch.setattr(writer, "_LONGEST_PAUSE_SECONDS", 3600.0)
    async with running(store) as ingest:
        await (await ingest.submit(message(1)))
        later = [await ingest.submit(message(number)) for number in range(2, 6)]
        assert await ingest.settled_marks([1]) == {1: 5}
        assert all(future.done() for future in later)
    assert ask(store, "SELECT count(*) FROM marks") == [(2,)]


@pytest.mark.parametrize("ends", ["messages of a session", "a claim", "the end"])
async def test_what_ends_a_group_ends_the_pause_after_a_commit(ends: str) -> None:
    loop = asyncio.get_running_loop()
    entries = [Entry(message=message(each), future=loop.create_future(), queued_seconds=0.0) for each in range(3)]
    gathered = writer._Gathered(Gathering(messages_of_session=3), pause_seconds=3600.0)
    for entry in entries[:2]:
        gathered.add(entry)
    assert gathered.seconds_left(1.0) > 1.0
    last: dict[str, Entry | Claim | None] = {
        "messages of a session": entries[2],
        "a claim": Claim(session_ids=[1], answer=lambda _: None),
        "the end": None,
    }
    gathered.add(last[ends])
    assert gathered.seconds_left(1.0) == 0.0


async def test_closing_ends_after_the_present_group_when_the_rest_is_abandoned(store: Store) -> None:
    class Holding(Summaries):
        """Holds up the writer's thread after its first group, until the test lets it go."""

        def __call__(self, connection: duckdb.DuckDBPyConnection, run_ids: Sequence[str], now: datetime) -> None:
            loop.call_soon_threadsafe(held.set)
            go.wait()
            super().__call__(connection, run_ids, now)

    loop, held, go = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    async with running(store, Holding(), IngestSettings(gathering=Gathering(messages=1))) as ingest:
        first = await ingest.submit(run_message(1, "a", "succeeded"))
        queued = [await ingest.submit(message(number)) for number in range(2, 5)]
        await held.wait()
        ingest.abandon()
        go.set()
    assert (await first).verdict is Verdict.COMMITTED
    assert [future.cancelled() for future in queued] == [True] * 3
    assert count(store, "core_samples") == 0


async def test_who_submits_waits_while_the_queue_is_full(store: Store) -> None:
    size_bytes = len(message(1).records)
    settings = IngestSettings(queue_limit_bytes=2 * size_bytes)
    ingest = Ingest(store=store, summarize=Summaries(), settings=settings)
    tasks = [asyncio.create_task(ingest.submit(message(number))) for number in range(1, 5)]
    await asyncio.sleep(0)
    assert [task.done() for task in tasks] == [True, True, False, False]
    assert ingest.queued_bytes == 2 * size_bytes
    ingest.start()
    assert [(await (await task)).verdict for task in tasks] == [Verdict.COMMITTED] * 4
    await ingest.close()


async def test_a_message_larger_than_the_queue_passes_alone(store: Store) -> None:
    async with running(store, settings=IngestSettings(queue_limit_bytes=1)) as ingest:
        assert (await (await ingest.submit(message(1)))).verdict is Verdict.COMMITTED


@ON_BOTH_KINDS
async def test_a_store_that_fails_for_a_while_is_tried_again_and_nothing_is_stored_twice(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    faults = ["before commit", "after commit", "before commit"]
    settings = IngestSettings(first_retry_seconds=0.001)
    async with running(failing(store, faults), settings=settings) as ingest:
        futures = [await ingest.submit(message(number)) for number in range(1, 4)]
        await asyncio.wait(futures)
        assert not any(future.cancelled() for future in futures)
    assert count(store, "core_samples") == 3
    assert "cannot write the" in caplog.text


async def test_others_are_asked_to_give_memory_back_when_the_writer_finds_none(store: Store) -> None:
    asked = asyncio.Event()
    settings = IngestSettings(first_retry_seconds=0.001)
    ingest = Ingest(
        store=failing(store, ["out of memory"]), summarize=Summaries(), settings=settings, out_of_memory=asked.set
    )
    ingest.start()
    assert (await (await ingest.submit(message(1)))).verdict is Verdict.COMMITTED
    await asked.wait()
    await ingest.close()


async def test_a_run_has_its_figures_when_its_end_is_acknowledged(store: Store) -> None:
    async with running(store) as ingest:
        for number in range(1, 6):
            await (await ingest.submit(run_message(number, f"run-{number}", "succeeded")))
            assert count(store, "run_metrics") == number


async def test_a_run_whose_end_was_committed_although_the_commit_failed_is_summarised(store: Store) -> None:
    summaries = Summaries()
    settings = IngestSettings(first_retry_seconds=0.001)
    async with running(failing(store, ["after commit"]), summaries, settings) as ingest:
        await (await ingest.submit(run_message(1, "a", "succeeded")))
    assert summaries.run_ids == ["a"]


async def test_stopping_gives_up_on_a_store_that_fails_and_acknowledges_nothing(store: Store) -> None:
    async with running(failing(store, ["before commit"] * 100)) as ingest:
        future = await ingest.submit(message(1))
    assert future.cancelled()
    assert "could not be" in str(await ingest.failed)
    with pytest.raises(StoreError):
        await ingest.submit(message(2))
    assert count(store, "core_samples") == 0


async def test_a_store_that_is_beyond_help_ends_ingest_in_words(store: Store) -> None:
    async with running(failing(store, ["fatal"])) as ingest:
        future = await ingest.submit(message(1))
        assert "DuckDB closed the" in str(await ingest.failed)
        assert future.cancelled()
        with pytest.raises(StoreError):
            await ingest.settled_marks([1])


@ON_BOTH_KINDS
async def test_runs_of_an_agent_that_has_gone_end_as_lost_and_are_summarised(store: Store) -> None:
    summaries, hours = Summaries(), iter(range(10**6))

    def now() -> datetime:
        return datetime.fromisoformat("2026-01-01") + timedelta(hours=next(hours))

    settings = IngestSettings(intervals=Intervals(check=timedelta(0)))
    ingest = Ingest(store=store, summarize=summaries, settings=settings, now=now)
    ingest.start()
    await (await ingest.submit(run_message(1, "a", "running")))
    await ingest.settled_marks([1])
    await ingest.settled_marks([1])
    await ingest.close()
    assert ask(store, "SELECT run_id, status FROM runs") == [("a", "lost")]
    assert summaries.run_ids == ["a"]


async def test_runs_are_summarised_when_they_end(store: Store) -> None:
    summaries = Summaries()
    async with running(store, summaries) as ingest:
        for number, (run_id, status) in enumerate([("a", "running"), ("b", "failed"), ("a", "succeeded")], 1):
            await (await ingest.submit(run_message(number, run_id, status)))
    assert summaries.run_ids == ["b", "a"]


async def test_a_summary_that_failed_is_tried_again_alone_and_holds_up_no_other(store: Store) -> None:
    class Fussy(Summaries):
        """Fails for run a the first two times, and for whatever is asked for with it."""

        def __call__(self, connection: duckdb.DuckDBPyConnection, run_ids: Sequence[str], now: datetime) -> None:
            failures = self.run_ids.count("a")
            self.error = ValueError("no") if "a" in run_ids and failures < 2 else None
            super().__call__(connection, run_ids, now)

    settings = IngestSettings(intervals=Intervals(check=timedelta(0)))
    async with running(store, Fussy(), settings) as ingest:
        tables = {"run_states": [{"run_id": run_id, "status": "failed", "time": 1} for run_id in ("a", "b")]}
        await (await ingest.submit(message(1, tables)))
        for number in range(2, 5):
            await (await ingest.submit(message(number)))
    assert ask(store, "SELECT run_id FROM run_metrics ORDER BY 1") == [("a",), ("b",)]


async def test_many_runs_are_caught_up_with_between_commits(store: Store) -> None:
    broken, working = Summaries(), Summaries()
    broken.error = ValueError("no")
    run_ids = [f"run-{number:02d}" for number in range(45)]
    states = [{"run_id": run_id, "status": "failed", "time": 1} for run_id in run_ids]
    requests = [{"run_id": run_id, "time": 1} for run_id in run_ids]
    async with running(store, broken) as ingest:
        await (await ingest.submit(message(1, {"run_states": states, "run_requests": requests})))
    async with running(store, working) as ingest:
        for number in range(2, 6):
            await (await ingest.submit(message(number)))
    assert sorted(working.run_ids) == run_ids


async def test_a_summary_that_fails_loses_nothing_and_is_made_up_for_at_the_next_start(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    broken, working = Summaries(), Summaries()
    broken.error = ValueError("cannot divide by zero")
    async with running(store, broken) as ingest:
        await (await ingest.submit(run_message(1, "a", "succeeded")))
        await (await ingest.submit(message(2)))
    assert count(store, "run_metrics") == 0
    for _ in range(2):
        async with running(store, working):
            pass
    assert "cannot summarise a" in caplog.text
    assert count(store, "core_samples") == 1
    assert working.run_ids == ["a"]
