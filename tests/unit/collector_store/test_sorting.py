"""Sorting old samples of a file: the same rows, by device and time, whatever happens in between."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import duckdb
import pytest

from gpuagent_collector.ingest.housekeeping import Retaining
from gpuagent_collector.store import Store, sorting
from gpuagent_collector.store.retention import Retention
from gpuagent_collector.store.sorting import sort_old

START = datetime.fromisoformat("2026-01-01")
HOUR, DAY = timedelta(hours=1), timedelta(days=1)

# Two nodes with two GPUs, in the order of arrival: power every 30 minutes, and GPM in rows of its own.
_ADD = """
INSERT INTO gpu_samples (session_id, node_id, device_id, time, utilization_percent, power_watts, sm_active_percent)
SELECT node, node, gpu, $start + to_minutes(30 * tick), if(lane = 0, 50, NULL), if(lane = 0, tick, NULL),
       if(lane = 1, tick, NULL)
FROM range($ticks) t(tick), range(2) n(node), range(2) g(gpu), range(2) l(lane)
ORDER BY tick, node, gpu, lane
"""
_ROWS = "SELECT * FROM gpu_samples ORDER BY ALL"
_PLACES = """
SELECT row(utilization_percent IS NULL, sm_active_percent IS NULL, node_id, device_id, time)
FROM gpu_samples ORDER BY rowid
"""


@pytest.fixture
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    with Store.open(str(tmp_path_factory.mktemp("sorted") / "runs")) as store, store.connect() as connection:
        yield connection


def add(connection: duckdb.DuckDBPyConnection, ticks: int, start: datetime = START) -> None:
    connection.execute(_ADD, {"start": start, "ticks": ticks})


def places(connection: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    return [place for (place,) in connection.execute(_PLACES).fetchall()]


def sort(connection: duckdb.DuckDBPyConnection, now: datetime) -> list[int]:
    """Sort and return the number of rows of each slice."""
    return [done.added for done in sort_old(connection, now)]


def test_a_day_that_is_over_lies_by_lane_device_and_time(connection: duckdb.DuckDBPyConnection) -> None:
    add(connection, 48)
    before = connection.execute(_ROWS).fetchall()
    assert sort(connection, START + DAY) == []  # its last samples may be on their way
    assert sort(connection, START + DAY + HOUR) == [384]
    assert connection.execute(_ROWS).fetchall() == before
    assert places(connection) == sorted(places(connection))
    assert sort(connection, START + DAY + HOUR) == []


def test_large_slices_are_divided_and_do_not_wait_for_the_end_of_the_day(
    connection: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorting, "SLICE_ROWS", 100)
    add(connection, 48)
    before = connection.execute(_ROWS).fetchall()
    slices = sort(connection, START + 13 * HOUR)
    assert slices == [96]  # the rest of 96 waits for more
    slices += sort(connection, START + DAY + HOUR)
    assert sum(slices) == 384
    assert max(slices) <= 100
    assert connection.execute(_ROWS).fetchall() == before
    found = iter(places(connection))
    for rows in slices:
        part = [next(found) for _ in range(rows)]
        assert part == sorted(part)


def test_late_samples_stay_where_they_are_and_days_without_any_are_passed_over(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    add(connection, 48)
    sort(connection, START + DAY + HOUR)
    add(connection, 2)
    add(connection, 48, START + 9 * DAY)
    before = connection.execute(_ROWS).fetchall()
    assert sort(connection, START + 11 * DAY) == [384]
    assert connection.execute(_ROWS).fetchall() == before
    assert connection.execute("SELECT count(*) FROM sortings").fetchone() == (1,)  # a table's last


def test_an_unfinished_day_is_sorted_when_asked_for(connection: duckdb.DuckDBPyConnection) -> None:
    add(connection, 10)
    now = START + 4 * HOUR
    assert [done.added for done in sort_old(connection, now, settled=timedelta(0))] == [64]
    assert places(connection)[-64:] == sorted(places(connection)[-64:])


def test_samples_that_retention_has_left_are_sorted_between_commits(connection: duckdb.DuckDBPyConnection) -> None:
    add(connection, 48)
    now = START + 2 * DAY
    add(connection, 1, now - HOUR)  # as the clock says
    keeping = Retaining(connection, Retention(), is_lake=False, every=HOUR, now=lambda: now, monotonic=lambda: 0.0)
    keeping.tick()
    assert connection.execute("SELECT table_name, until FROM sortings").fetchall() == [("gpu_samples", START + DAY)]
