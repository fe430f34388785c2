"""A clock that is ahead makes nothing old before samples have agreed with it for a day."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuagent_collector.ingest.housekeeping import Retaining
from gpuagent_collector.store import Store
from gpuagent_collector.store.retention import Retention, trusted_now
from tests.support.stores import open_store

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
START = datetime.fromisoformat("2026-01-01")
# What time it is.
TRUE = START + 9 * DAY

NODE, OTHER = 1, 2

_SAMPLE = """
INSERT INTO host_samples (session_id, node_id, time) SELECT $node, $node, unnest(generate_series($first, $last, $step))
"""
_LEFT = "SELECT (SELECT count(*) FROM host_samples), (SELECT count(*) FROM host_rollups)"


def sample(
    connection: duckdb.DuckDBPyConnection,
    first: datetime,
    last: datetime,
    node: int = NODE,
    ahead: timedelta = HOUR * 0,
) -> None:
    step = timedelta(minutes=30)
    connection.execute(_SAMPLE, {"node": node, "first": first + ahead, "last": last + ahead, "step": step})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with open_store(f"{tmp_path_factory.mktemp('sampled')}/runs") as store:
        yield store


@pytest.fixture
def connection(store: Store) -> Iterator[duckdb.DuckDBPyConnection]:
    with store.connect() as opened:
        begin_again(opened)
        yield opened


def begin_again(connection: duckdb.DuckDBPyConnection) -> None:
    for table in ("host_samples", "host_rollups", "steps"):
        connection.execute(f"DELETE FROM {table}")
    sample(connection, START, TRUE)


def test_a_store_is_as_old_as_its_newest_samples(connection: duckdb.DuckDBPyConnection) -> None:
    for ahead in (0 * HOUR, HOUR * 1.5, 99 * DAY):
        assert trusted_now(connection, TRUE + ahead) == TRUE


def test_a_collector_whose_clock_alone_is_ahead_is_never_trusted(connection: duckdb.DuckDBPyConnection) -> None:
    sample(connection, TRUE, TRUE + 2 * DAY)
    for passed in (timedelta(0), HOUR, DAY, 2 * DAY):
        assert trusted_now(connection, TRUE + passed + 3 * DAY) <= TRUE + 2 * DAY


@pytest.mark.parametrize("ahead", [DAY + HOUR, 3653 * DAY])
def test_a_clock_that_is_ahead_with_its_node_s_is_believed_when_a_day_has_passed(
    connection: duckdb.DuckDBPyConnection, ahead: timedelta
) -> None:
    sample(connection, TRUE, TRUE + 2 * DAY, ahead=ahead)
    for passed in (HOUR, 12 * HOUR, DAY - HOUR):
        assert trusted_now(connection, TRUE + passed + ahead) == TRUE
    assert trusted_now(connection, TRUE + DAY + ahead) == TRUE + DAY + ahead


def test_a_node_whose_clock_is_ahead_changes_nothing(connection: duckdb.DuckDBPyConnection) -> None:
    sample(connection, START, TRUE, node=OTHER, ahead=99 * DAY)
    assert trusted_now(connection, TRUE) == TRUE


def test_a_store_that_is_younger_than_a_day_has_nothing_to_disagree(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("DELETE FROM host_samples WHERE time < ?", [TRUE - 2 * HOUR])
    assert trusted_now(connection, TRUE) == TRUE


def test_samples_that_were_thinned_out_and_steps_tell_as_well(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("DELETE FROM host_samples")
    connection.execute("INSERT INTO host_rollups (time, seconds) VALUES (?, 60)", [TRUE - DAY - HOUR / 2])
    connection.execute("INSERT INTO steps (time) VALUES (?)", [TRUE])
    assert trusted_now(connection, TRUE) == TRUE


@pytest.mark.parametrize("time", ["infinity", "-infinity", "0044-03-15 (BC)"])
def test_times_that_are_none_tell_nothing(connection: duckdb.DuckDBPyConnection, time: str) -> None:
    connection.execute("INSERT INTO host_samples (time) VALUES (?::TIMESTAMP)", [time])
    assert trusted_now(connection, TRUE + 99 * DAY) == TRUE
    connection.execute("DELETE FROM host_samples WHERE time < ?", [TRUE + DAY])
    assert trusted_now(connection, TRUE) == TRUE


def serve(connection: duckdb.DuckDBPyConnection, kept: Retention, now: datetime) -> None:
    keeping = Retaining(connection, kept, is_lake=False, every=HOUR, now=lambda: now, monotonic=lambda: 0.0)
    for _ in range(4):
        keeping.tick()


@settings(max_examples=6, deadline=None)
@given(days_ahead=st.floats(1.1, 4000), with_node=st.booleans(), hours=st.floats(0, 23), starts=st.integers(1, 2))
def test_whatever_a_clock_is_set_ahead_to_nothing_that_is_young_goes_within_a_day(
    store: Store, days_ahead: float, with_node: bool, hours: float, starts: int
) -> None:
    ahead, now = timedelta(days=days_ahead), TRUE + timedelta(hours=hours)
    with store.connect() as connection:
        begin_again(connection)
        sample(connection, TRUE, now, ahead=ahead if with_node else timedelta(0))
        before = connection.execute(_LEFT).fetchone()
        for _ in range(starts):
            serve(connection, Retention(samples=10 * DAY, everything=20 * DAY), now + ahead)
        assert connection.execute(_LEFT).fetchone() == before


def test_a_served_store_is_thinned_out_when_the_clock_is_right(connection: duckdb.DuckDBPyConnection) -> None:
    serve(connection, Retention(samples=9 * DAY - 2 * HOUR), TRUE)
    assert connection.execute(_LEFT).fetchone() == ((9 * 24 - 2) * 2 + 1, 4)


@pytest.mark.slow
def test_a_lake_is_asked_alike(tmp_path: Path) -> None:
    with open_store(f"ducklake:{tmp_path}/runs") as lake:
        with lake.connect() as connection:
            sample(connection, TRUE - 2 * DAY, TRUE)
            sample(connection, TRUE, TRUE + HOUR, ahead=9 * DAY)
        times = [lake.trusted_now(time) for time in (TRUE, TRUE + 99 * DAY, TRUE + HOUR + 9 * DAY)]
        assert times == [TRUE, TRUE + HOUR + 9 * DAY, TRUE]
