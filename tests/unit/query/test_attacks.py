"""What a query must never do, tried on both kinds of store, opened for writing as in a running collector."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gpuagent_collector.query.execute import Execution, Limits
from gpuagent_collector.query.guard import Guard, store_relations
from gpuagent_collector.store import Store
from gpuagent_common.errors import GpuAgentError, MisuseError

pytestmark = pytest.mark.slow

# A Python variable that DuckDB would find by its name if replacement scans were on.
secret_rows = [{"password": "only Python knows this"}]

ATTACKS = [
    # writing
    *("INSERT INTO steps (run_id) VALUES ('x')", "UPDATE run_requests SET workload = 'x'", "DELETE FROM run_requests"),
    *("TRUNCATE run_requests", "DROP TABLE run_requests", "DROP VIEW runs", "ALTER TABLE steps ADD COLUMN x INT"),
    "MERGE INTO steps USING run_requests ON false WHEN NOT MATCHED THEN INSERT DEFAULT VALUES",
    *("CREATE TABLE x AS SELECT 1", "CREATE TEMP TABLE x AS SELECT 1", "CREATE TEMP VIEW runs AS SELECT 1"),
    *("CREATE MACRO sum(x) AS 1", "CREATE SEQUENCE x", "CREATE SECRET (TYPE s3, KEY_ID 'x', SECRET 'x')"),
    *("COMMENT ON TABLE steps IS 'x'", "WITH x AS (DELETE FROM run_requests RETURNING *) SELECT * FROM x"),
    "SELECT * INTO x FROM runs",
    # writing, hidden
    *("EXPLAIN ANALYZE DELETE FROM run_requests", "EXPLAIN ANALYZE INSERT INTO steps (run_id) VALUES ('x')"),
    *("EXPLAIN (ANALYZE) DELETE FROM run_requests", "EXPLAIN (ANALYZE, FORMAT JSON) DELETE FROM run_requests"),
    *("/* x */ EXPLAIN/**/ANALYZE DELETE FROM run_requests", "EXPLAIN EXPLAIN ANALYZE DELETE FROM run_requests"),
    *("EXPLAIN ANALYZE CREATE TABLE x AS SELECT 1", "SELECT 1; DELETE FROM run_requests"),
    *("SELECT 1 /* ; */ ; -- \n DELETE FROM run_requests", "EXPLAIN SELECT 1; DELETE FROM run_requests"),
    *("PREPARE x AS DELETE FROM run_requests", "EXECUTE x", "FROM query('DELETE FROM run_requests')"),
    *("FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))", "PRAGMA json_execute_serialized_sql('{}')"),
    "PIVOT run_requests ON workload",
    # files, in and out
    *("COPY run_requests TO 'stolen.csv'", "COPY (SELECT 1) TO 'stolen.csv'", "COPY run_requests FROM '/etc/passwd'"),
    *("EXPORT DATABASE 'stolen'", "IMPORT DATABASE 'stolen'", "PRAGMA import_database('stolen')"),
    *("PRAGMA copy_database(lake, x)", "FROM '/etc/passwd'", "FROM '*.csv'", "FROM 's3://bucket/x.parquet'"),
    *('FROM main."/etc/passwd"', "DESCRIBE FROM '/etc/passwd'", "SUMMARIZE '/etc/passwd'"),
    *("FROM read_csv('/etc/passwd')", "FROM read_csv_auto('/etc/passwd')", "FROM sniff_csv('/etc/passwd')"),
    *("FROM read_text('/etc/*')", "FROM read_blob('/etc/passwd')", "FROM read_json('/etc/passwd')"),
    *("FROM read_parquet('x.parquet')", "FROM parquet_metadata('x.parquet')", "FROM read_duckdb('other.duckdb')"),
    *("FROM glob('/etc/*')", "SELECT (SELECT content FROM read_text('/etc/passwd'))"),
    "SELECT * FROM runs WHERE EXISTS (FROM read_text('/etc/passwd'))",
    *("SELECT json_serialize_plan('FROM read_text(''/etc/passwd'')')", "SELECT getenv('HOME')"),
    *("SELECT \"GetEnv\"('HOME')", "SELECT run_id.getenv() FROM runs"),
    # other catalogs, settings and processes
    *("ATTACH 'other.duckdb'", "DETACH lake", "USE memory", "FROM memory.main.runs"),
    *("FROM __ducklake_metadata_lake.ducklake_snapshot", "FROM ducklake_snapshots('lake')"),
    *("CALL ducklake_expire_snapshots('lake', older_than => now())", "CALL lake.set_option('parquet_version', 2)"),
    *("FROM query_table('run_requests')", "FROM query_table(['ducklake_snapshot'])"),
    *("FROM histogram('run_requests', 'run_id')", "FROM duckdb_databases()", "FROM duckdb_secrets()"),
    *("FROM duckdb_settings()", "FROM duckdb_logs()", "FROM duckdb_tables", "FROM sqlite_master"),
    *("FROM pg_catalog.pg_tables", "FROM information_schema.tables", "SHOW ALL TABLES", "SHOW DATABASES"),
    *("SHOW VARIABLES", "SHOW TABLES FROM memory", "SHOW search_path", "INSTALL httpfs", "LOAD httpfs"),
    *("UPDATE EXTENSIONS", "SET memory_limit = '1 TB'", "SET GLOBAL enable_external_access = true"),
    *("RESET lock_configuration", "SET VARIABLE x = 1", "SELECT getvariable('x')"),
    *("SELECT current_setting('s3_secret_access_key')", "PRAGMA memory_limit = '1 TB'", "PRAGMA database_list"),
    *("PRAGMA enable_profiling", "FROM pragma_storage_info('steps')", "CALL pragma_version()", "CHECKPOINT"),
    *("FORCE CHECKPOINT", "FROM checkpoint()", "CALL enable_logging()", "VACUUM", "BEGIN", "COMMIT", "ROLLBACK"),
    *("SELECT nextval('x')", "SELECT setseed(0.5)", "SELECT write_log('x')", "SELECT sleep_ms(100000)"),
    *("SELECT pg_sleep(100000)", "SELECT stats(run_id) FROM runs"),
    # names of WITH where they are not known
    *("FROM (WITH sqlite_master AS (SELECT 1) FROM sqlite_master), sqlite_master", "FROM recurring.sqlite_master"),
    "(WITH sqlite_master AS (SELECT 1) FROM sqlite_master) UNION ALL FROM sqlite_master",
    # a function that reads the environment, at each place of a statement
    *("FROM runs LIMIT (SELECT length(getenv('HOME')))", "FROM runs ORDER BY getenv('HOME')"),
    *("SELECT * REPLACE (getenv('HOME') AS run_id) FROM runs", "SELECT [getenv(x) FOR x IN ['HOME']]"),
    *("SELECT count(*) FILTER (WHERE getenv('HOME') > '') FROM runs", "VALUES (getenv('HOME'))"),
    *("SELECT sum(1) OVER (PARTITION BY getenv('HOME')) FROM runs", "SELECT DISTINCT ON (getenv('HOME')) 1 FROM runs"),
    *("FROM runs a JOIN runs b ON getenv('HOME') > a.run_id", "SELECT COLUMNS(c -> getenv(c) > '') FROM runs"),
    *("SELECT 1 FROM runs GROUP BY GROUPING SETS ((getenv('HOME')))", "SELECT '1'::DECIMAL(getenv('HOME')::INT)"),
    "SELECT system.main.getenv('HOME')",
    # other characters where words end
    *("\ufeffEXPLAIN ANALYZE DELETE FROM run_requests", "EXPLAIN\u00a0ANALYZE\u00a0DELETE FROM run_requests"),
    *("SELECT $x$ $x$; DELETE FROM run_requests; --$x$", 'FROM U&"\\0064uckdb_settings"'),
    # what ends the process
    "SELECT lag(repeat, -9223372036854775808) OVER () FROM runs",
    # Python
    *("FROM secret_rows", "FROM pandas_scan(1)", "FROM arrow_scan(1, 2, 3)", "FROM python_map_function(1)"),
]


def guard_of(store: Store) -> Guard:
    with store.connect() as connection:
        return Guard(store_relations(connection))


def execute(store: Store, sql: str, limits: Limits | None = None) -> list[dict[str, object]]:
    execution = Execution(store.connect, limits or Limits(timeout_seconds=240.0))
    try:
        return execution.start(sql).read_all().to_pylist()
    finally:
        execution.close()


def state(store: Store) -> object:
    """Return all that an attack might change: every table's rows, what there is, the settings, the files."""
    with store.connect() as connection:
        names = [row[0] for row in connection.execute("SHOW TABLES").fetchall()]
        rows = {
            name: connection.execute(f'SELECT count(*), bit_xor(hash(t)) FROM "{name}" t').fetchall() for name in names
        }
        settings = connection.execute("SELECT name, value FROM duckdb_settings() ORDER BY name").fetchall()
        databases = connection.execute("SELECT database_name FROM duckdb_databases() ORDER BY 1").fetchall()
    folder = store.spec.path.parent
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return rows, settings, databases, files, sorted(path.name for path in Path().iterdir())


@contextmanager
def unchanged(store: Store) -> Iterator[None]:
    before = state(store)
    yield
    assert state(store) == before


def test_every_attack_is_refused_and_changes_nothing(shared_store: Store) -> None:
    let_through, guard = [], guard_of(shared_store)
    with unchanged(shared_store):
        for attack in ATTACKS:
            try:
                guard.check(attack)
            except MisuseError:
                continue
            let_through.append(attack)
    assert not let_through


BEHIND_THE_GUARD = [
    *("INSERT INTO steps (run_id) VALUES ('x')", "EXPLAIN ANALYZE DELETE FROM run_requests", "DROP VIEW runs"),
    *("CREATE TABLE x AS SELECT 1", "COPY run_requests TO 'stolen.csv'", "FROM '/etc/passwd'"),
    *("FROM read_text('/etc/passwd')", "FROM secret_rows", "ATTACH 'other.duckdb'", "INSTALL httpfs"),
    *("SET GLOBAL memory_limit = '1 TB'", "SET enable_external_access = true"),
]


def test_the_fences_behind_the_guard_hold_by_themselves(shared_store: Store) -> None:
    executed = []
    with unchanged(shared_store):
        for attack in BEHIND_THE_GUARD:
            with suppress(GpuAgentError):
                execute(shared_store, attack)
                executed.append(attack)
    assert not executed


@pytest.mark.parametrize(
    "bomb",
    [
        "WITH RECURSIVE x AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM x) SELECT count(*) FROM x",
        "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range + b.range = 7",
        "SELECT DISTINCT hash(range) FROM range(100000000000)",
    ],
)
def test_a_bomb_ends_at_its_limit(store: Store, bomb: str) -> None:
    # Such a query may spill to the scratch directory, so only a table is compared.
    before = execute(store, "SELECT count(*) FROM run_requests")
    with pytest.raises(GpuAgentError, match=r"exceeded its 0\.3 s|needs more memory"):
        execute(store, guard_of(store).check(bomb), Limits(timeout_seconds=0.3))
    assert execute(store, "SELECT count(*) FROM run_requests") == before
