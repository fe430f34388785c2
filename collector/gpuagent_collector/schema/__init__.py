"""The store's schema: numbered SQL files, each applied once, in order, in a transaction of its own."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import resources

import duckdb

from gpuagent_collector.errors import StoreError

_HISTORY = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    version BIGINT,                       -- | number of the migration | collector
    name VARCHAR,                         -- | its file | collector
    applied_at TIMESTAMP                  -- UTC | when | collector
)
"""

_CREATED = re.compile(r"CREATE (?:OR REPLACE )?(?:TABLE|VIEW) (?:IF NOT EXISTS )?(\w+)")

_TABLES = "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One step of the schema: the content of `NNNN_name.sql`."""

    version: int
    name: str
    sql: str


def load_migrations() -> tuple[Migration, ...]:
    """Return the migrations that this version of the collector knows, oldest first."""
    files = [each for each in resources.files(__name__).iterdir() if each.name.endswith(".sql")]
    return tuple(
        Migration(version=int(each.name.split("_")[0]), name=each.name, sql=each.read_text("utf-8"))
        for each in sorted(files, key=lambda each: each.name)
    )


@cache
def schema_relations() -> frozenset[str]:
    """Return the names of the tables and views that the schema makes. All others in a store are its users' own."""
    return frozenset(_CREATED.findall("\n".join([_HISTORY, *(each.sql for each in load_migrations())])))


def stored_version(connection: duckdb.DuckDBPyConnection) -> int | None:
    """Return the version of the store's schema: 0 for an empty store, None for another program's tables."""
    tables = _table_names(connection)
    if not tables:
        return 0
    if "schema_migrations" not in tables:
        return None
    # All rows: a result that is not read to its end keeps its transaction open, and DuckDB then frees nothing.
    ((version,),) = connection.execute("SELECT coalesce(max(version), 0) FROM schema_migrations").fetchall()
    return int(version)


def check_version(connection: duckdb.DuckDBPyConnection, migrations: Sequence[Migration]) -> int:
    """Return the version of the store's schema if this collector can read or migrate it.

    Raises StoreError: the store is newer than this collector, or belongs to another program.
    """
    version, newest = stored_version(connection), migrations[-1].version
    if version is None:
        raise StoreError("it is no store of gpuagent: it has tables of another program; name another file")
    if version > newest:
        raise StoreError(
            f"it was written by a newer collector (schema {version}; this one knows {newest}); upgrade gpuagent"
        )
    return version


# Finishes the tables that a migration made, given the names of earlier tables.
Finish = Callable[[duckdb.DuckDBPyConnection, frozenset[str]], None]


def migrate(
    connection: duckdb.DuckDBPyConnection,
    migrations: Sequence[Migration],
    now: datetime,
    *,
    finish: Finish | None = None,
) -> None:
    """Bring the store to the newest schema. A migration that fails leaves no trace; `finish` is a part of each.

    Raises:
        StoreError: the store is newer than this collector, or belongs to another program.
        duckdb.Error: a migration failed.
    """
    version = check_version(connection, migrations)
    for migration in migrations:
        if migration.version > version:
            _apply(connection, migration, now, finish)


def _apply(connection: duckdb.DuckDBPyConnection, migration: Migration, now: datetime, finish: Finish | None) -> None:
    connection.begin()
    try:
        # To list them takes a lake as long as half a migration.
        before = frozenset(_table_names(connection)) if finish is not None else frozenset[str]()
        connection.execute(_HISTORY)
        for statement in connection.extract_statements(migration.sql):
            connection.execute(statement)
        if finish is not None:
            finish(connection, before)
        connection.execute("INSERT INTO schema_migrations VALUES (?, ?, ?)", [migration.version, migration.name, now])
        connection.commit()
    except duckdb.Error:
        with suppress(duckdb.Error):  # a commit that failed has ended its transaction
            connection.rollback()
        raise


def _table_names(connection: duckdb.DuckDBPyConnection) -> set[str]:
    return {name for (name,) in connection.execute(_TABLES).fetchall()}
