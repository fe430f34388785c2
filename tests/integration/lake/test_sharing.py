"""Several collectors on one lake, in one process: whoever is interrupted wherever, each message is stored once."""

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import cast

import duckdb
import pytest

from gpuagent.sampling.rows import encode_records
from gpuagent_collector.ingest.committer import Committer
from gpuagent_collector.ingest.messages import Message, Verdict
from gpuagent_collector.ingest.ownership import Duty, SharedOwnership
from gpuagent_collector.store import Store, StoreSpec
from gpuagent_collector.store.compact import fold_bookkeeping, tidy_lake
from gpuagent_collector.store.retention import Retention, retain
from gpuagent_collector.times import utc_now
from tests.support.postgres import Postgres
from tests.unit.collector_store.faults import FaultyConnection

pytestmark = [pytest.mark.slow, pytest.mark.needs("psql")]

NODE = 8
SESSIONS = count(100)


class Hooked(FaultyConnection):
    """A real connection that calls a function before its next commit."""

    before_commit: Callable[[], object] | None = None

    def commit(self) -> None:
        hook, self.before_commit = self.before_commit, None
        if hook is not None:
            hook()
        super().commit()


class Member:
    """One of the collectors: an instance, a connection and a committer of its own."""

    def __init__(self, lake: StoreSpec) -> None:
        self.store = Store.open(lake)
        self.connection = Hooked(self.store.connect())
        connection = cast("duckdb.DuckDBPyConnection", self.connection)
        self.ownership = SharedOwnership(connection, utc_now)
        self.committer = Committer(connection, now=utc_now, ownership=self.ownership)
        self.duty_seconds = 0.0
        self.duty = Duty(connection, self.ownership, monotonic=lambda: self.duty_seconds)

        self.session_id = 0

    def claim(self) -> int:
        return self.committer.claim([self.session_id]).get(self.session_id, 0)

    def commit(self, *numbers: int) -> list[Verdict]:
        messages = [message(self.session_id, number) for number in numbers]
        return [outcome.verdict for outcome in self.committer.commit(messages).outcomes]

    def stored(self) -> list[int]:
        with self.store.connect() as connection:
            sql = "SELECT core FROM core_samples WHERE session_id = ? ORDER BY 1"
            return [core for (core,) in connection.execute(sql, [self.session_id]).fetchall()]

    def close(self) -> None:
        self.connection.close()
        self.store.close()


def message(session_id: int, number: int) -> Message:
    records = encode_records({"core_samples": [{"core": number, "time": 1, "cpu_percent": 50.0}]})
    return Message(session_id=session_id, node_id=NODE, number=number, records=records)


@contextmanager
def open_members(lake: StoreSpec) -> Iterator[tuple[Member, Member]]:
    with closing(Member(lake)) as first, closing(Member(lake)) as second:
        yield first, second


@pytest.fixture(scope="module")
def fleet(lake: StoreSpec) -> Iterator[tuple[Member, Member]]:
    with open_members(lake) as members:
        yield members


@pytest.fixture
def fleet_alone(server: Postgres, tmp_path: Path) -> Iterator[tuple[Member, Member]]:
    """Two collectors on a lake without rows of other tests: thinning out works through all that it finds."""
    with open_members(StoreSpec.parse(f"ducklake:postgres:{server.database()}", str(tmp_path / "files"))) as members:
        members[0].session_id = members[1].session_id = next(SESSIONS)
        yield members


@pytest.fixture
def members(fleet: tuple[Member, Member]) -> tuple[Member, Member]:
    first, second = fleet
    first.session_id = second.session_id = next(SESSIONS)
    return fleet


def test_a_session_goes_from_one_collector_to_the_other_and_back(members: tuple[Member, Member]) -> None:
    first, second = members
    assert first.claim() == 0
    assert first.commit(1, 2) == [Verdict.COMMITTED] * 2
    assert second.claim() == 2
    assert second.commit(2, 3) == [Verdict.DUPLICATE, Verdict.COMMITTED]
    assert first.commit(3, 4) == [Verdict.DISOWNED] * 2
    assert first.claim() == 3
    assert first.commit(3, 4) == [Verdict.DUPLICATE, Verdict.COMMITTED]
    assert second.commit(5) == [Verdict.DISOWNED]
    assert second.stored() == [1, 2, 3, 4]


def test_a_takeover_in_the_middle_of_a_commit_wins(members: tuple[Member, Member]) -> None:
    first, second = members
    first.claim()
    first.connection.before_commit = second.claim
    assert first.commit(1) == [Verdict.DISOWNED]
    assert second.commit(1) == [Verdict.COMMITTED]
    assert first.stored() == [1]


def test_a_takeover_of_another_session_delays_a_commit_and_changes_nothing(members: tuple[Member, Member]) -> None:
    first, second = members
    first.claim()
    first.connection.before_commit = lambda: second.committer.claim([-first.session_id])
    assert first.commit(1) == [Verdict.COMMITTED]
    assert first.stored() == [1]


def test_of_two_that_meet_a_session_for_the_first_time_at_once_one_writes_it(members: tuple[Member, Member]) -> None:
    first, second = members
    first.connection.before_commit = second.claim
    first.claim()
    verdicts = [second.commit(1), first.commit(1)]
    assert sorted(each.value for (each,) in verdicts) == ["committed", "disowned"]
    assert first.stored() == [1]


@pytest.mark.parametrize("fault", ["before commit", "after commit"])
def test_a_commit_whose_answer_is_lost_is_found_or_made_again(members: tuple[Member, Member], fault: str) -> None:
    first, second = members
    first.claim()
    first.connection.faults = [fault]
    with pytest.raises(duckdb.IOException):
        first.commit(1)
    assert first.commit(1) == [Verdict.DUPLICATE if fault == "after commit" else Verdict.COMMITTED]
    assert second.stored() == [1]


def test_a_claim_whose_answer_is_lost_forgets_no_marks(members: tuple[Member, Member]) -> None:
    first, second = members
    first.claim()
    assert first.commit(1) == [Verdict.COMMITTED]
    second.claim()
    assert second.commit(2, 3) == [Verdict.COMMITTED] * 2
    first.connection.faults = ["after commit"]
    with pytest.raises(duckdb.IOException):
        first.claim()
    assert first.claim() == 3
    assert first.commit(3, 4) == [Verdict.DUPLICATE, Verdict.COMMITTED]
    assert first.stored() == [1, 2, 3, 4]


def race(member: Member, last: int, seed: int) -> None:
    """Claim the session and commit some of its messages, again and again, with commits that fail and answers lost."""
    moments = random.Random(seed)
    while (mark := member.claim()) < last:
        for number in range(mark + 1, min(mark + moments.randrange(2, 6), last + 1)):
            member.connection.faults = [moments.choice(["before commit", "after commit"])] * (moments.random() < 0.2)
            try:
                member.commit(number)
            except duckdb.IOException:
                break  # as an agent does: it sends again from where it is told
            finally:
                member.connection.faults = []


def compact(store: Store) -> None:
    with store.connect() as connection:
        fold_bookkeeping(connection)
        tidy_lake(connection)


def test_collectors_that_race_for_a_session_while_another_compacts_store_each_message_once(
    members: tuple[Member, Member],
) -> None:
    last = 30
    with ThreadPoolExecutor(len(members) + 1) as pool:
        racing = [pool.submit(race, member, last, seed) for seed, member in enumerate(members)]
        racing.append(pool.submit(compact, members[0].store))
        for future in racing:
            future.result()
    assert members[0].stored() == list(range(1, last + 1))


def test_one_keeps_house_until_it_is_silent(members: tuple[Member, Member]) -> None:
    first, second = members
    assert first.duty.take()
    assert not second.duty.take()
    second.duty_seconds = 61.0
    first.connection.begin()
    assert first.duty.sign()
    first.connection.commit()
    assert not second.duty.take()  # it was heard since the last look
    second.duty_seconds = 122.0
    assert second.duty.take()
    first.connection.begin()
    assert not first.duty.sign()
    first.connection.rollback()


def files(connection: duckdb.DuckDBPyConnection) -> int:
    """Return how many files hold the rows of January 2026, which those of other tests are not from."""
    paths = "SELECT count(*) FILTER (data_file LIKE '%year=2026%') FROM ducklake_list_files('lake', 'core_samples')"
    row = connection.execute(paths).fetchone()
    assert row
    return int(row[0])


def remove(connection: duckdb.DuckDBPyConnection) -> int:
    kept, now = Retention(everything=timedelta(days=1)), datetime.fromisoformat("2026-01-03")
    return sum(done.removed for done in retain(connection, kept, now, sorted_by_node=True))


def test_compaction_makes_few_files_and_retention_removes_old_samples_alone(members: tuple[Member, Member]) -> None:
    first, second = members
    with second.store.connect() as connection:
        for day in (1, 2):
            for _ in range(3):
                connection.execute(
                    "INSERT INTO core_samples (session_id, node_id, time, core) "
                    "SELECT ?, i % 4, make_timestamp(2026, 1, ?, 0, 0, i % 60), i FROM range(1100) r(i)",
                    [first.session_id, day],
                )
        connection.execute("INSERT INTO run_metrics (run_id) VALUES ('r')")
        assert files(connection) >= 6
        fold_bookkeeping(connection)
        tidy_lake(connection)
        assert files(connection) == 2
        assert remove(connection) >= 3300
        assert remove(connection) == 0
        assert connection.execute("SELECT count(*) FROM run_metrics").fetchone() == (1,)
    assert first.stored() == sorted([*range(1100)] * 3)


def thin_out(connection: Hooked | duckdb.DuckDBPyConnection) -> None:
    kept = Retention(samples=timedelta(days=1))
    for _ in retain(cast("duckdb.DuckDBPyConnection", connection), kept, utc_now(), sorted_by_node=True):
        pass


def test_commits_that_thinning_out_meets_lose_and_repeat_nothing(fleet_alone: tuple[Member, Member]) -> None:
    first, second = fleet_alone
    first.claim()
    first.commit(1, 2)
    with second.store.connect() as connection:
        hooked = Hooked(connection)
        hooked.before_commit = lambda: first.commit(3)
        thin_out(hooked)
        first.commit(4)
        first.connection.before_commit = lambda: thin_out(connection)
        assert first.commit(5) == [Verdict.COMMITTED]
        assert first.stored() == [5]
        thin_out(connection)
        rows = "SELECT core, cpu_percent.mean, cpu_percent.count FROM core_rollups WHERE session_id = ? ORDER BY core"
        assert connection.execute(rows, [first.session_id]).fetchall() == [(core, 50.0, 1) for core in range(1, 6)]
    assert first.stored() == []
