"""Clients' SQL: what the guard lets through is executed where nothing else would stop it, and must only have read.

The database there can write, read files and change settings. After each statement that the guard lets through, its
tables, schemas, settings and the files around it are what they were, and no answer holds what stands in a file.

An input that begins with a byte below 32 is made of words, two bytes for each.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import duckdb
import pyarrow as pa

from gpuagent_collector.query.columns import store_columns
from gpuagent_collector.query.growth import Growth
from gpuagent_collector.query.guard import Guard
from gpuagent_collector.store.shared import NO_DOWNLOADS
from gpuagent_common.errors import MisuseError
from tests.fuzz.bounded import Bounded
from tests.fuzz.tally import Attempt

_SECRET = b"only this file knows"

TOKENS = (
    b"SELECT|*|FROM|WHERE|GROUP BY ALL|ORDER BY 1|LIMIT 3|UNION ALL|WITH x AS (|RECURSIVE|JOIN|USING (run_id)|"
    b"ON true|CROSS JOIN|LATERAL|ASOF|POSITIONAL JOIN|WINDOW|OVER ()|QUALIFY|INSERT INTO|UPDATE|DELETE FROM|"
    b"DROP TABLE|CREATE TABLE x AS|COPY|TO 'out.csv'|ATTACH 'o.db'|PRAGMA|SET|CALL|EXPLAIN|ANALYZE|DESCRIBE|"
    b"SUMMARIZE|SHOW|TABLES|PREPARE p AS|EXECUTE p|runs|steps|x|main.runs|'secret.csv'|\"secret.csv\"|'*.csv'|"
    b"'/etc/passwd'|memory.main.runs|(|)|,|;|.|::|=|+|1|0|'a'|NULL|[1]|{'a': 1}|--\n|/*|*/|$1|?|->|AS|IN|EXISTS|"
    b"CASE WHEN|THEN|ELSE|END|CAST(|PIVOT|UNPIVOT|VALUES|RETURNING *|INTO|information_schema.tables|sqlite_master|"
    b"pg_catalog.pg_tables|duckdb_settings()|COLUMNS(*)|EXCLUDE"
).split(b"|")
_WORDS = tuple(token.decode() for token in TOKENS)

_STATE = """
SELECT (SELECT list(t ORDER BY t) FROM (SELECT table_name || estimated_size || column_count AS t FROM duckdb_tables())),
       (SELECT list(view_name ORDER BY view_name) FROM duckdb_views() WHERE NOT internal),
       (SELECT list(database_name ORDER BY database_name) FROM duckdb_databases()),
       (SELECT list(s ORDER BY s) FROM (SELECT name || '=' || coalesce(value, '') AS s FROM duckdb_settings())),
       (SELECT count(*) FROM duckdb_functions()), (SELECT count(*) FROM duckdb_sequences()),
       (SELECT count(*) FROM duckdb_schemas()), (SELECT count(*) FROM duckdb_secrets()),
       (SELECT count(*) FROM duckdb_types()), (SELECT count(*) FROM duckdb_prepared_statements()),
       (SELECT count(*) FROM duckdb_extensions() WHERE loaded),
       (SELECT count(*) FROM runs), (SELECT sum(step) FROM steps)
"""


@contextmanager
def opened(folder: Path) -> Iterator[Attempt]:
    """Open a database that stops nobody, beside a file that nobody may read."""
    (folder / "secret.csv").write_bytes(b"a,b\n1," + _SECRET + b"\n")
    before = Path.cwd()
    os.chdir(folder)
    try:
        with closing(_database()) as connection, Bounded(connection, seconds=1.0).watched() as bounded:
            yield _Guarded(connection, bounded, folder).attempt
    finally:
        os.chdir(before)


def _database() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={**NO_DOWNLOADS, "memory_limit": "500MB", "threads": "1"})
    connection.execute("SET python_enable_replacements = false")
    connection.execute("CREATE TABLE runs AS SELECT 'r' || i AS run_id, 'mnist' AS workload FROM range(3) t(i)")
    connection.execute("CREATE TABLE steps AS SELECT 'r' || i % 3 AS run_id, i AS step FROM range(30) t(i)")
    return connection


class _Guarded:
    def __init__(self, connection: duckdb.DuckDBPyConnection, bounded: Bounded, folder: Path) -> None:
        self._guard = Guard(["runs", "steps"])
        self._growth = Growth(store_columns(connection))
        self._connection = connection
        self._bounded = bounded
        self._folder = folder
        found = connection.execute("SELECT DISTINCT function_name FROM duckdb_functions() ORDER BY 1").fetchall()
        self._words = (*_WORDS, *(f"{name}(" for (name,) in found))
        self._before = self._state()

    def attempt(self, data: bytes) -> None:
        sql = _made(data, self._words) if data[:1] < b" " else data.decode(errors="replace")
        try:
            statement = self._guard.read(sql)
        except MisuseError as error:
            assert str(error)
            return
        with suppress(MisuseError):
            self._growth.check(statement.tree)  # a viewer's would end here; an operator's goes on
        with suppress(duckdb.Error):
            rows = self._bounded.first_rows(statement.sql)
            assert rows is None or not _holds(rows, _SECRET), sql
        after = self._state()
        assert after == self._before, sql

    def _state(self) -> object:
        files = {path.name: path.stat().st_size for path in self._folder.iterdir()}
        return files, self._connection.execute(_STATE).fetchone()


def _holds(rows: pa.RecordBatch, text: bytes) -> bool:
    return any(buffer and text in buffer.to_pybytes() for column in rows.columns for buffer in column.buffers())


def _made(data: bytes, words: Sequence[str]) -> str:
    pairs = zip(data[1::2], data[2::2], strict=False)
    return " ".join(words[(high << 8 | low) % len(words)] for high, low in pairs)
