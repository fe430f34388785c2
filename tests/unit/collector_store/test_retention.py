"""Thinning samples out: nothing is lost of what a row a second or minute can tell, whatever happens in between."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import cache
from itertools import chain
from typing import Any, cast

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuagent_collector.ingest.housekeeping import Retaining
from gpuagent_collector.store import Store, retention
from gpuagent_collector.store.columns import SAMPLES, agent_tables, table_columns
from gpuagent_collector.store.retention import Retention, Slice, retain, sampled_tables
from gpuagent_collector.store.transactions import transaction
from gpuagent_common.errors import MisuseError
from tests.support.stores import on_both_kinds, open_store
from tests.unit.collector_store.faults import FaultyConnection

pytestmark = pytest.mark.slow

RUNS = ("run_requests", "run_states", "run_metrics", "run_events", "steps")
TABLES = ("gpu_samples", "source_samples")
START = datetime.fromisoformat("2026-01-01")
LATER = START + timedelta(days=30)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
SECONDS = Retention(samples=DAY)
MINUTES = Retention(samples=HOUR, seconds=DAY)

# Node, device, seconds since the start, watts.
Reading = tuple[int, int, float, float | None]

READINGS = st.tuples(
    st.sampled_from([1, 2]),
    st.sampled_from([10, 11]),
    st.floats(3580, 3620, allow_nan=False).map(lambda seconds: round(seconds, 1)),
    st.none() | st.integers(0, 700_000).map(lambda milliwatts: milliwatts / 1000),
)

_ADD = """
INSERT INTO gpu_samples (session_id, node_id, device_id, time, power_watts, memory_used_bytes)
SELECT 5, unnest($nodes), unnest($gpus), $start + to_milliseconds(100 * unnest($tenths)::BIGINT), unnest($watts), 1000
"""

_TOLD = """
SELECT node_id, device_id, sum(power_watts.mean * power_watts.count), coalesce(sum(power_watts.count), 0),
       min(power_watts.min), max(power_watts.max), sum(memory_used_bytes.count)
FROM (
    SELECT node_id, device_id, power_watts, memory_used_bytes FROM gpu_rollups
    UNION ALL
    SELECT node_id, device_id,
           {'mean': power_watts, 'min': power_watts, 'max': power_watts, 'count': count(power_watts) OVER one},
           {'mean': 0, 'min': memory_used_bytes, 'max': memory_used_bytes, 'count': 1}
    FROM gpu_samples WINDOW one AS (PARTITION BY rowid)
)
GROUP BY node_id, device_id ORDER BY node_id, device_id
"""

_REPEATED = """
SELECT count(*) FROM (
    FROM gpu_rollups SELECT node_id, device_id, time, seconds GROUP BY ALL HAVING count(*) > 1
)
"""


def add(connection: duckdb.DuckDBPyConnection, *readings: Reading) -> None:
    nodes, gpus, seconds, watts = (list(column) for column in zip(*readings, strict=True))
    tenths = [round(10 * second) for second in seconds]
    values = {"nodes": nodes, "gpus": gpus, "tenths": tenths, "watts": watts, "start": START}
    connection.execute(_ADD, values)


def told(connection: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    return connection.execute(_TOLD).fetchall()


def expected(readings: Sequence[Reading]) -> list[tuple[Any, ...]]:
    rows = []
    for node, gpu in sorted({reading[:2] for reading in readings}):
        own = [reading[3] for reading in readings if reading[:2] == (node, gpu)]
        watts = [each for each in own if each is not None]
        total = math.fsum(watts) if watts else None
        rows.append((node, gpu, total, len(watts), min(watts, default=None), max(watts, default=None), len(own)))
    return rows


def thin(store: Store, kept: Retention, now: datetime = LATER) -> list[Slice]:
    return list(store.retain(kept, now))


@pytest.fixture(autouse=True, scope="module")
def _two_tables() -> Iterator[None]:
    """A lake takes some milliseconds to look into each table; all of them look the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            retention, "sampled_tables", lambda tables: {name: sampled_tables(tables)[name] for name in TABLES}
        )
        yield


@pytest.fixture(scope="module")
def store_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Store]]:
    with ExitStack() as opened:
        yield cache(lambda kind: opened.enter_context(open_store(f"{kind}{tmp_path_factory.mktemp('kept')}/runs")))


# A lake takes 20 ms for each statement: for tests of what it does differently.
in_a_lake_too = on_both_kinds("store")


@pytest.fixture
def store(request: pytest.FixtureRequest, store_of: Callable[[str], Store]) -> Store:
    return store_of(getattr(request, "param", ""))


@pytest.fixture
def connection(store: Store) -> Iterator[duckdb.DuckDBPyConnection]:
    with store.connect() as opened:
        empty(opened)
        yield opened


def empty(connection: duckdb.DuckDBPyConnection) -> None:
    with transaction(connection):
        for table in ("gpu_samples", "gpu_rollups", "source_samples", "source_rollups", *RUNS):
            connection.execute(f"DELETE FROM {table}")


@settings(max_examples=8, deadline=None)
@given(
    batches=st.lists(st.lists(READINGS, min_size=1, max_size=12), min_size=1, max_size=3),
    steps=st.lists(st.sampled_from([SECONDS, MINUTES, Retention(seconds=DAY)]), min_size=3, max_size=3),
)
def test_sums_counts_and_extremes_stay_whatever_is_thinned_out_and_arrives_late(
    store_of: Callable[[str], Store], batches: list[list[Reading]], steps: list[Retention]
) -> None:
    store = store_of("")
    with store.connect() as connection:
        empty(connection)
        for readings, kept in zip(batches, steps, strict=False):
            add(connection, *readings)
            thin(store, kept)
            assert connection.execute("SELECT count(*) FROM gpu_samples").fetchone() == (0,)
        thin(store, MINUTES)
        assert [pytest.approx(row) for row in expected(list(chain(*batches)))] == told(connection)
        assert connection.execute(_REPEATED).fetchone() == (0,)
        assert connection.execute("SELECT DISTINCT seconds FROM gpu_rollups").fetchall() == [(60,)]


@in_a_lake_too
def test_thinning_out_twice_changes_nothing_in_slices_as_small_as_can_be(
    store: Store, connection: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "SLICE_ROWS", 1)
    add(connection, *((node, 10, seconds, seconds / 7) for node in (1, 2) for seconds in (0.1, 0.4, 61.0)))
    for kept in (SECONDS, MINUTES):
        assert sum(done.removed for done in thin(store, kept)) > 0
        rows = connection.execute("FROM gpu_rollups ORDER BY ALL").fetchall()
        assert thin(store, kept) == []
        assert connection.execute("FROM gpu_rollups ORDER BY ALL").fetchall() == rows


def test_what_is_younger_stays_as_it_was_read(store: Store, connection: duckdb.DuckDBPyConnection) -> None:
    add(connection, (1, 10, 0.1, 5.0), (1, 10, 7200.1, 6.0), (1, 10, 9000.1, 7.0))
    thin(store, SECONDS, START + DAY + timedelta(seconds=9500))  # whole hours only
    assert connection.execute("SELECT power_watts FROM gpu_samples ORDER BY time").fetchall() == [(6.0,), (7.0,)]


@in_a_lake_too
def test_a_reading_that_comes_late_joins_its_second(store: Store, connection: duckdb.DuckDBPyConnection) -> None:
    add(connection, (1, 10, 3.1, 10.0), (1, 10, 3.2, 20.0))
    thin(store, SECONDS)
    add(connection, (1, 10, 3.3, 90.0))
    thin(store, SECONDS)
    rows = connection.execute("SELECT time, seconds, power_watts FROM gpu_rollups").fetchall()
    assert rows == [(START + timedelta(seconds=3), 1, {"mean": 40.0, "min": 10.0, "max": 90.0, "count": 3})]


def test_each_column_becomes_what_it_means(store: Store, connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute(
        "INSERT INTO gpu_samples (session_id, node_id, device_id, time, throttle_reasons, energy_joules, power_kind) "
        "SELECT 5, 1, 10, TIMESTAMP '2026-01-01' + to_milliseconds(100 * i), [1, 4, 0][i + 1], 50 + i, 'instant' "
        "FROM range(3) r(i)"
    )
    connection.execute(
        "INSERT INTO source_samples (session_id, node_id, time, source, reads, busy_seconds) "
        "SELECT 5, 1, TIMESTAMP '2026-01-01' + to_seconds(10 * i), ['cpu', 'gpu'][i % 2 + 1], 100, 0.5 "
        "FROM range(6) r(i)"
    )
    thin(store, MINUTES)
    gpu = "SELECT throttle_reasons, energy_joules, power_kind, power_watts, seconds FROM gpu_rollups"
    assert connection.execute(gpu).fetchall() == [(5, 52.0, "instant", None, 60)]
    sources = "SELECT source, reads, busy_seconds, failures FROM source_rollups ORDER BY source"
    assert connection.execute(sources).fetchall() == [("cpu", 300, 1.5, None), ("gpu", 300, 1.5, None)]


def test_a_slice_of_many_nodes_is_cut_by_nodes(
    store: Store, connection: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "SLICE_ROWS", 4)
    add(connection, *((node, 10, tenths / 10, 1.0) for node in range(5) for tenths in (1, 2)))
    assert [(done.removed, done.added) for done in thin(store, SECONDS)] == [(4, 2), (4, 2), (2, 1)]


def test_a_number_that_no_rollup_holds_is_in_nobody_s_way(store: Store, connection: duckdb.DuckDBPyConnection) -> None:
    add(connection, (1, 10, 1.1, 1e300), (1, 10, 1.2, 5.0), (1, 10, 2.1, 1e300))
    connection.execute(
        "INSERT INTO source_samples (session_id, node_id, time, source, reads) SELECT 5, 1, ?, 'cpu', ? FROM range(2)",
        [START, 2**62],
    )
    thin(store, MINUTES)
    watts = connection.execute("SELECT power_watts, memory_used_bytes.count FROM gpu_rollups").fetchall()
    assert watts == [({"mean": 5.0, "min": 5.0, "max": 5.0, "count": 1}, 3)]
    assert connection.execute("SELECT source, reads FROM source_rollups").fetchall() == [("cpu", None)]


@pytest.mark.parametrize("time", ["-infinity", "0044-03-15 (BC)"])
def test_a_time_of_before_all_clocks_ends_nothing(
    store: Store, connection: duckdb.DuckDBPyConnection, time: str
) -> None:
    connection.execute("INSERT INTO gpu_samples (node_id, time) VALUES (1, ?::TIMESTAMP)", [time])
    add(connection, (1, 10, 1.1, 5.0))
    assert [done.removed for done in thin(store, SECONDS)] == [1]
    assert sum(done.removed for done in thin(store, Retention(everything=DAY))) == 2


@in_a_lake_too
def test_samples_of_a_run_stay_until_it_has_its_figures(store: Store, connection: duckdb.DuckDBPyConnection) -> None:
    add(connection, (1, 10, 100.0, 1.0), (1, 10, 1000.0, 2.0), (2, 10, 1000.0, 3.0), (1, 10, 3000.0, 4.0))
    connection.execute("INSERT INTO run_requests (run_id, session_id, node_id, time) VALUES ('r', 5, 1, ?)", [START])
    for status, second in (("running", 900), ("succeeded", 1100)):
        at = START + timedelta(seconds=second)
        connection.execute(
            "INSERT INTO run_states (run_id, session_id, node_id, time, status) VALUES ('r', 5, 1, ?, ?)", [at, status]
        )
    thin(store, SECONDS)
    assert connection.execute("SELECT node_id, power_watts FROM gpu_samples").fetchall() == [(1, 2.0)]
    connection.execute("INSERT INTO run_metrics (run_id, computed_at, metric) VALUES ('r', ?, 'duration')", [LATER])
    thin(store, SECONDS)
    assert connection.execute("SELECT count(*) FROM gpu_samples").fetchone() == (0,)


@in_a_lake_too
def test_in_the_end_samples_and_steps_go_and_figures_stay(store: Store, connection: duckdb.DuckDBPyConnection) -> None:
    add(connection, (1, 10, 1.0, 1.0))
    thin(store, SECONDS)
    add(connection, (1, 10, 2.0, 1.0))
    for table in ("steps", "run_events"):
        connection.execute(f"INSERT INTO {table} (run_id, time) VALUES ('r', ?)", [START])
    assert sum(done.removed for done in thin(store, Retention(everything=DAY))) == 3
    counts = [connection.execute(f"SELECT count(*) FROM {table}").fetchone() for table in ("gpu_rollups", "run_events")]
    assert counts == [(0,), (1,)]


class BreakingConnection(FaultyConnection):
    """A real connection that breaks at its n-th call in a transaction."""

    left: float = math.inf

    def execute(self, sql: str, parameters: object = None) -> duckdb.DuckDBPyConnection:
        self._count()
        return self._connection.execute(sql, parameters)

    def commit(self) -> None:
        self._count()
        super().commit()

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise duckdb.IOException("killed")


def test_broken_off_anywhere_it_goes_on_where_it_was(store: Store, connection: duckdb.DuckDBPyConnection) -> None:
    readings: list[Reading] = [
        (1, 10, hour * 3600 + second / 10, float(second)) for hour in (0, 1) for second in range(9)
    ]
    add(connection, *readings)
    breaking = BreakingConnection(connection)
    interrupted = 0
    while True:
        breaking.left = interrupted
        try:
            slices = retain(cast("duckdb.DuckDBPyConnection", breaking), MINUTES, LATER, sorted_by_node=False)
            list(slices)
        except duckdb.IOException:
            interrupted += 1
            assert told(connection) == [pytest.approx(row) for row in expected(readings)]
        else:
            break
    assert interrupted > 8
    assert connection.execute("SELECT count(*) FROM gpu_samples").fetchone() == (0,)
    assert connection.execute(_REPEATED).fetchone() == (0,)


def test_every_sample_has_a_place_to_be_thinned_out_to(connection: duckdb.DuckDBPyConnection) -> None:
    tables = table_columns(connection)
    pairs = sampled_tables(tables)
    assert set(pairs) == {name for name in tables if name.endswith(SAMPLES)}
    for samples, rollups in pairs.items():
        assert tables[rollups].keys() == {*tables[samples], "seconds"}
    assert not set(pairs.values()) & agent_tables(connection).keys()


@pytest.mark.parametrize(
    ("ages", "words"),
    [
        ({"samples": DAY, "seconds": DAY}, "--keep-raw must be less than --keep-seconds"),
        ({"samples": 2 * DAY, "everything": DAY}, "--keep-raw must be less than --keep"),
        ({"seconds": 2 * DAY, "everything": DAY}, "--keep-seconds must be less than --keep"),
    ],
)
def test_a_retention_that_keeps_the_finer_for_longer_is_refused(ages: dict[str, timedelta], words: str) -> None:
    with pytest.raises(MisuseError, match=f"^{words}$"):
        Retention(**ages)


class TestBetweenCommits:
    @pytest.fixture
    def clock(self) -> Callable[[], float]:
        ticks = iter(range(10**6))
        return lambda: float(next(ticks))

    def test_a_slice_at_a_time_and_a_fifth_of_the_time(
        self, connection: duckdb.DuckDBPyConnection, clock: Callable[[], float]
    ) -> None:
        add(connection, *((1, 10, 3600.0 * hour, 1.0) for hour in range(3)))
        connection.execute("INSERT INTO steps (time) VALUES (?), (?)", [LATER, LATER - DAY])  # as the clock says
        keeping = Retaining(connection, SECONDS, is_lake=False, every=HOUR, now=lambda: LATER, monotonic=clock)
        left = []
        for _ in range(20):  # a second each, and two more where something is done
            keeping.tick()
            left.append(connection.execute("SELECT count(*) FROM gpu_samples").fetchone())
        assert left == [(2,)] * 4 + [(1,)] * 4 + [(0,)] * 12
