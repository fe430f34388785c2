"""Who is shown a part of the store learns nothing of the rest, whatever is asked."""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from gpuagent_collector.query.execute import Execution, Limits
from gpuagent_collector.query.visible_parts import Part, Parts
from gpuagent_collector.store import Store
from gpuagent_collector.store.columns import table_columns
from gpuagent_collector.trust.tokens import Reach
from gpuagent_common.errors import MisuseError
from tests.support.stores import KINDS, open_store

pytestmark = pytest.mark.slow

SHOWN, HIDDEN = 111, 666

# Tables of which no row is a session's or a run's.
_BOOKKEEPING = {"commits", "schema_migrations", "sortings"}


def _value(kind: str, column: str, number: int) -> Any:
    """Return a value that tells whose it is."""
    if kind == "JSON":
        return json.dumps({"team": f"team-{number}"})
    if kind == "VARCHAR":
        return f"{column}-{number}"
    if kind.startswith("STRUCT"):
        return dict.fromkeys(re.findall(r"(\w+) [A-Z]", kind), number)
    return datetime(2000 + number, 1, 1) if kind == "TIMESTAMP" else number  # noqa: DTZ001 - the store's are UTC


def fill_every_table(connection: duckdb.DuckDBPyConnection) -> None:
    """Put a row of a session that is shown, and one of another, into every column of every table."""
    connection.begin()  # a lake takes a file for each
    for table, columns in table_columns(connection).items():
        if table != "schema_migrations":
            for number in (SHOWN, HIDDEN):
                values = [_value(kind, column, number) for column, kind in columns.items()]
                marks = ", ".join("?" * len(values))
                connection.execute(f'INSERT INTO "{table}" VALUES ({marks})', values)
    connection.commit()


@pytest.fixture(scope="module", params=KINDS, ids=["file", "lake"])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store that no test here changes."""
    with open_store(f"{request.param}{tmp_path_factory.mktemp('parts')}/runs.duckdb") as store:
        with store.connect() as connection:
            fill_every_table(connection)
        yield store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "runs.duckdb")) as store:
        yield store


@pytest.fixture(scope="module")
def part(filled: Store) -> Part:
    return Parts(filled).of(Reach(platforms=(f"platform-{SHOWN}",)))


def ask(part: Part, sql: str) -> list[dict[str, Any]]:
    execution = Execution(part.connect, Limits(timeout_seconds=240.0))
    try:
        return execution.start(part.guard.check(sql)).read_all().to_pylist()
    finally:
        execution.close()


def relations(part: Part) -> list[str]:
    return [row["name"] for row in ask(part, "SHOW TABLES")]


def test_of_every_table_and_view_only_rows_of_shown_sessions_come(part: Part, filled: Store) -> None:
    with filled.connect() as connection:
        assert relations(part) == [name for (name,) in connection.execute("SHOW TABLES").fetchall()]
    for name in relations(part):
        rows = ask(part, f'FROM "{name}"')
        assert str(HIDDEN) not in str(rows), name
        assert bool(rows) == (name not in ("commits", "sortings")), name
        if name not in _BOOKKEEPING:
            assert str(SHOWN) in str(rows), name


def test_a_viewer_of_a_user_sees_this_users_jobs_alone(store: Store) -> None:
    with store.connect() as connection:
        connection.execute("INSERT INTO sessions BY NAME SELECT 1 AS session_id, 1 AS node_id, 'hpc' AS platform")
        connection.execute("INSERT INTO host_samples BY NAME SELECT 1 AS session_id, 50.0 AS cpu_percent")
        for number, user in enumerate(("alice", "bob", "alice", None)):
            row = "INSERT INTO owners BY NAME SELECT 1 AS session_id, ? AS owner_id, ? AS user_name"
            connection.execute(row, [number, user])
            connection.execute("INSERT INTO owner_samples BY NAME SELECT 1 AS session_id, ? AS owner_id", [number])
            connection.execute("INSERT INTO owner_steps BY NAME SELECT 1 AS session_id, ? AS owner_id", [number])
        # One that another message gives to somebody else.
        connection.execute("INSERT INTO owners BY NAME SELECT 1 AS session_id, 2 AS owner_id, 'bob' AS user_name")
    part = Parts(store).of(Reach(labels=(("user", "alice"),)))
    for table in ("owners", "owner_samples", "owner_steps"):
        assert {row["owner_id"] for row in ask(part, f"FROM {table}")} == {0}
    assert ask(part, "SELECT platform FROM sessions") == [{"platform": "hpc"}]
    assert ask(part, "SELECT count(*) AS n FROM host_samples") == [{"n": 0}]


# Statements that fail, or return something, when they are evaluated on a hidden row, wherever DuckDB evaluates it.
ORACLES = [
    "SELECT count(*) FROM {name} t WHERE CASE WHEN t::VARCHAR LIKE '%666%' THEN error('seen') ELSE true END",
    "SELECT count(*) FROM {name} t WHERE t::VARCHAR LIKE '%666%' AND error('seen')",
    "SELECT CASE WHEN t::VARCHAR LIKE '%666%' THEN error('seen') END AS x FROM {name} t",
    "SELECT max(CASE WHEN t::VARCHAR LIKE '%666%' THEN error('seen') END) AS x FROM {name} t",
    "FROM {name} t JOIN range(9) ON CASE WHEN t::VARCHAR LIKE '%666%' THEN error('seen') ELSE 1 END = range",
    "SELECT count(*) FROM {name} t ORDER BY any_value(CASE WHEN t::VARCHAR LIKE '%666%' THEN error('seen') END)",
    "SELECT count(*) FROM {name} t GROUP BY CASE WHEN t::VARCHAR LIKE '%666%' THEN error('seen') END",
    "FROM {name} t WHERE t::VARCHAR LIKE '%666%' LIMIT 1",
    "FROM (SUMMARIZE {name}) t WHERE t::VARCHAR LIKE '%666%'",
]


def assert_oracles_are_silent(part: Part, *names: str) -> None:
    for name in names:
        for oracle in ORACLES:
            assert "666" not in str(ask(part, oracle.format(name=name))), (name, oracle)


def test_no_error_and_no_count_tells_of_a_hidden_row(part: Part) -> None:
    assert_oracles_are_silent(part, "sessions", "runs", "run_metrics")


def test_nor_do_they_where_runs_have_the_labels(part_of_runs: Part) -> None:
    assert_oracles_are_silent(part_of_runs, "sessions", "runs", "steps", "process_samples")


def _outcome(part: Part, sql: str) -> str:
    try:
        return str(ask(part, sql))
    except MisuseError as error:
        return str(error)


def test_what_hidden_rows_hold_at_most_does_not_decide_what_is_evaluated(part: Part) -> None:
    for column in ("node_id", "cpu_threads"):
        sql = f"SELECT count(*) FROM sessions WHERE error('evaluated') IS NULL AND {column} > "
        assert _outcome(part, f"{sql} {SHOWN + 1}") == _outcome(part, f"{sql} {HIDDEN + 1}")


def test_a_cast_that_only_hidden_rows_would_fail_does_not_fail(part: Part) -> None:
    sql = "SELECT count(*) AS n FROM sessions WHERE replace(platform, 'platform-111', '1')::INT = 1"
    assert ask(part, sql) == [{"n": 1}]


def test_the_oracles_would_tell_where_the_rows_are_shown(filled: Store) -> None:
    whole = Parts(filled).of(None)
    for oracle in ORACLES[:3]:
        with pytest.raises(MisuseError, match="seen"):
            ask(whole, oracle.format(name="sessions"))


WAYS_AROUND = [
    # the store, by its names
    *("FROM {store}.sessions", "FROM {store}.main.sessions", 'FROM "{store}"."sessions"', "DESCRIBE {store}.sessions"),
    *("SUMMARIZE {store}.main.sessions", "FROM lake.sessions", "FROM memory.main.sessions", "SHOW TABLES FROM {store}"),
    "WITH x AS (FROM {store}.main.sessions) FROM x",
    "SELECT (SELECT max(platform) FROM {store}.main.sessions)",
    "FROM sessions WHERE platform IN (FROM {store}.main.sessions)",
    # what the part is made of
    *("FROM shown.sessions", "FROM {part}.shown.runs", "FROM {part}.main.sessions", "FROM temp.sessions"),
    # catalogs, statistics and storage
    *("FROM information_schema.tables", "FROM pg_catalog.pg_tables", "FROM sqlite_master", "FROM duckdb_views()"),
    *("FROM duckdb_tables()", "FROM duckdb_columns()", "FROM duckdb_constraints()", "FROM duckdb_temporary_files()"),
    *("FROM pragma_storage_info('sessions')", "PRAGMA storage_info('sessions')", "PRAGMA table_info('sessions')"),
    *("FROM pragma_table_info('sessions')", "SELECT stats(platform) FROM sessions", "SHOW ALL TABLES"),
    *("SELECT txid_current()", "SELECT vector_type(platform) FROM sessions"),
    *("FROM duckdb_approx_database_count()", "CALL pragma_database_size()", "SHOW DATABASES"),
    # by a text
    *("FROM query('FROM sessions')", "FROM query_table('{store}.main.sessions')", "FROM query_table(['sessions'])"),
    "FROM json_execute_serialized_sql(json_serialize_sql('FROM sessions'))",
    "SELECT json_serialize_plan('FROM {store}.main.sessions')",
    # lakes
    *("FROM ducklake_table_info('lake')", "FROM ducklake_snapshots('lake')", "FROM lake.snapshots()"),
    *("FROM ducklake_list_files('lake', 'steps')", "FROM __ducklake_metadata_lake.ducklake_table_stats"),
    "FROM __ducklake_metadata_lake.main.ducklake_file_column_stats",
    # plans
    *("EXPLAIN FROM sessions", "EXPLAIN ANALYZE FROM sessions", "/**/ explain (format json) FROM sessions"),
    # elsewhere
    *("USE {store}", "PREPARE x AS FROM sessions", "EXECUTE x", "SET search_path = '{store}'"),
    "ATTACH ':memory:' AS x",
    *("CREATE TEMP VIEW x AS FROM {store}.main.sessions", "COPY sessions TO '/dev/stdout'", "PRAGMA database_list"),
]


def test_every_way_around_is_refused(part: Part) -> None:
    with part.connect() as connection:
        ((name,),) = connection.execute("SELECT current_database()").fetchall()
        databases = {row[0] for row in connection.execute("SELECT database_name FROM duckdb_databases()").fetchall()}
    stores = sorted(databases - {name, "system", "temp"})
    let_through = []
    for store in stores:
        for way in WAYS_AROUND:
            try:
                part.guard.check(way.format(store=store, part=name))
            except MisuseError:
                continue
            let_through.append(way)
    assert stores
    assert not let_through


def test_what_a_lake_held_before_is_not_to_be_had(part: Part) -> None:
    with pytest.raises(MisuseError, match="support time travel"):
        ask(part, "FROM sessions AT (VERSION => 2)")


def test_the_part_holds_without_its_guard_for_names_that_name_no_database(part: Part) -> None:
    with part.connect() as connection:
        for name in ("sessions", "main.sessions", "runs", "main.host_samples"):
            assert str(HIDDEN) not in str(connection.execute(f"FROM {name}").fetchall())


def _sessions(connection: duckdb.DuckDBPyConnection, rows: list[tuple[int, str | None, str | None]]) -> None:
    connection.execute("DELETE FROM sessions")
    for session_id, platform, labels in rows:
        connection.execute(
            "INSERT INTO sessions BY NAME SELECT ? AS session_id, ? AS platform, ? AS labels",
            [session_id, platform, labels],
        )


@pytest.mark.parametrize(
    ("platforms", "labels", "shown"),
    [
        (["satori"], [], [1, 2]),
        (["satori", "gke"], [], [1, 2, 3]),
        ([], ["team=vision"], [1, 3]),
        ([], ["team=vision", "team=nlp"], [1, 2, 3]),
        (["satori"], ["team=vision"], [1]),
        ([], ["team=vision", "cost centre=7"], [3]),
        (["it's"], [], []),
        ([], ["te'am=vi'sion"], []),
        ([], ["$.team=vision"], []),
    ],
)
def test_platforms_are_alternatives_and_every_label_that_is_named_must_fit(
    store: Store, platforms: list[str], labels: list[str], shown: list[int]
) -> None:
    with store.connect() as connection:
        two_labels = '{"team": "vision", "cost centre": "7"}'
        shown_rows = [(1, "satori", '{"team": "vision"}'), (2, "satori", '{"team": "nlp"}'), (3, "gke", two_labels)]
        other_rows = [(4, None, None), (5, "Satori", '["team", "vision"]'), (7, "other", '"team=vision"')]
        _sessions(connection, [*shown_rows, *other_rows])
    reach = Reach.parse(platforms, labels)
    assert reach is not None
    rows = ask(Parts(store).of(reach), "SELECT session_id FROM sessions ORDER BY ALL")
    assert [row["session_id"] for row in rows] == shown


def test_a_session_that_says_two_things_of_itself_is_not_shown(store: Store) -> None:
    with store.connect() as connection:
        _sessions(connection, [(1, "satori", None), (1, "gke", None), (2, "satori", None)])
    rows = ask(Parts(store).of(Reach(platforms=("satori",))), "SELECT session_id FROM sessions")
    assert rows == [{"session_id": 2}]


def test_what_is_computed_of_a_run_is_shown_to_who_is_shown_all_its_sessions(store: Store) -> None:
    with store.connect() as connection:
        _sessions(connection, [(1, "satori", None), (2, "gke", None)])
        for run_id, session_id in (("alone", 1), ("moved", 1), ("moved", 2)):
            for table in ("run_requests", "run_states"):
                connection.execute(
                    f"INSERT INTO {table} BY NAME SELECT ? AS run_id, ? AS session_id", [run_id, session_id]
                )
        for run_id in ("alone", "moved"):
            connection.execute("INSERT INTO run_metrics BY NAME SELECT ? AS run_id, 'x' AS metric", [run_id])
            connection.execute("INSERT INTO run_states BY NAME SELECT ? AS run_id, 'lost' AS status", [run_id])
    satori = Parts(store).of(Reach(platforms=("satori",)))
    assert ask(satori, "SELECT run_id FROM run_metrics") == [{"run_id": "alone"}]
    assert ask(satori, "SELECT run_id FROM run_states WHERE status = 'lost'") == [{"run_id": "alone"}]
    both = Parts(store).of(Reach(platforms=("gke", "satori")))
    assert len(ask(both, "SELECT run_id FROM run_metrics")) == 2


@pytest.fixture(scope="module")
def part_of_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Part]:
    """What is shown of agents without labels, whose runs have them."""
    with open_store(f"{tmp_path_factory.mktemp('labelled')}/runs.duckdb") as store:
        with store.connect() as connection:
            fill_every_table(connection)
            connection.execute("UPDATE sessions SET labels = NULL")
        yield Parts(store).of(Reach(labels=(("team", f"team-{SHOWN}"),)))


def test_of_a_run_that_has_the_label_its_own_rows_come_and_what_it_ran_on(part_of_runs: Part) -> None:
    filled = {name for name in relations(part_of_runs) if ask(part_of_runs, f'FROM "{name}"')}
    of_runs = {"run_requests", "run_states", "run_devices", "steps", "results", "run_metrics", "run_energy", "images"}
    assert filled >= {*of_runs, "sessions", "session_devices", "runs", "nodes", "process_samples"}
    assert not filled & {"host_samples", "gpu_samples", "gpu_rollups", "clock_offsets", "gaps", "marks"}
    for name in filled:
        assert str(HIDDEN) not in str(ask(part_of_runs, f'FROM "{name}"')), name


@pytest.mark.parametrize(
    ("limit", "runs", "sampled"),
    [
        (["team=vision"], ["of-vision-on-nlp", "on-vision"], [2]),
        (["team=nlp"], ["of-nlp-on-vision", "on-nlp"], [1]),
        (["team=vision", "team=nlp"], ["of-nlp-on-vision", "of-vision-on-nlp", "on-nlp", "on-vision"], [1, 2]),
        (["team=vision", "cost=7"], ["of-vision-on-nlp"], []),
    ],
)
def test_a_run_s_own_label_counts_before_its_agent_s(
    store: Store, limit: list[str], runs: list[str], sampled: list[int]
) -> None:
    asked = {
        "on-nlp": (1, None),
        "of-vision-on-nlp": (1, '{"team": "vision", "cost": "7"}'),
        "on-vision": (2, "[]"),
        "of-nlp-on-vision": (2, '{"team": "nlp"}'),
    }
    with store.connect() as connection:
        _sessions(connection, [(1, "satori", '{"team": "nlp"}'), (2, "satori", '{"team": "vision"}')])
        for run_id, (session_id, labels) in asked.items():
            row = [run_id, session_id, labels]
            connection.execute("INSERT INTO run_requests BY NAME SELECT ? AS run_id, ? AS session_id, ? AS labels", row)
            for table in ("steps", "process_samples"):
                connection.execute(f"INSERT INTO {table} BY NAME SELECT ? AS run_id, ? AS session_id", row[:2])
        for table in ("host_samples", "process_samples"):
            connection.execute(f"INSERT INTO {table} BY NAME SELECT unnest([1, 2]) AS session_id")
    reach = Reach.parse([], limit)
    part = Parts(store).of(reach)
    for table in ("run_requests", "steps", "process_samples"):
        rows = ask(part, f"SELECT run_id FROM {table} WHERE run_id IS NOT NULL ORDER BY ALL")
        assert [row["run_id"] for row in rows] == runs, table
    for table in ("host_samples", "process_samples WHERE run_id IS NULL"):
        rows = ask(part, f"SELECT session_id FROM (FROM {table}) ORDER BY ALL")
        assert [row["session_id"] for row in rows] == sampled, table


def test_a_row_of_a_shown_run_by_a_session_that_is_not_in_it_is_not_shown(store: Store) -> None:
    with store.connect() as connection:
        _sessions(connection, [(1, "satori", None), (2, "gke", None)])
        connection.execute("INSERT INTO run_requests BY NAME SELECT 'r' AS run_id, 1 AS session_id")
        connection.execute("INSERT INTO steps BY NAME SELECT 'r' AS run_id, unnest([1, 2]) AS session_id")
    part = Parts(store).of(Reach(platforms=("satori",)))
    assert ask(part, "SELECT session_id FROM steps") == [{"session_id": 1}]


def test_tables_and_views_of_users_do_not_exist_there(store: Store) -> None:
    with store.connect() as connection:
        _sessions(connection, [(1, "satori", None), (2, "gke", None)])
        connection.execute("CREATE TABLE notes (node_id BIGINT, secret VARCHAR)")
        connection.execute("CREATE VIEW of_notes AS SELECT secret FROM notes")
        ((name,),) = connection.execute("SELECT current_database()").fetchall()
        connection.execute(f'CREATE VIEW past_the_part AS FROM "{name}".main.sessions')
        connection.execute("CREATE SCHEMA mine")
        connection.execute("CREATE TABLE mine.sessions (session_id BIGINT)")
    part = Parts(store).of(Reach(platforms=("satori",)))
    assert ask(part, "SELECT session_id FROM sessions") == [{"session_id": 1}]
    for relation in ("notes", "of_notes", "past_the_part", "mine.sessions"):
        with pytest.raises(MisuseError, match=f"no table {relation}"):
            ask(part, f"FROM {relation}")


def test_rows_that_come_later_are_shown_when_they_fit(store: Store) -> None:
    part = Parts(store).of(Reach(platforms=("new",)))
    assert ask(part, "FROM sessions") == []
    with store.connect() as connection:
        connection.execute("INSERT INTO sessions BY NAME SELECT 9 AS session_id, 'new' AS platform")
        connection.execute("INSERT INTO core_samples BY NAME SELECT 9 AS session_id, 5 AS core")
    assert ask(part, "SELECT core FROM core_samples") == [{"core": 5}]
