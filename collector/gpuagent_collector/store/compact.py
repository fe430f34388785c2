"""Layout and compaction of what many small commits left behind.

Every function raises duckdb.Error if the store fails; its rows are then unchanged.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from gpuagent_collector.store.columns import is_large, table_columns
from gpuagent_collector.store.instance import LAKE
from gpuagent_collector.store.sorting import sort_order
from gpuagent_collector.store.transactions import retry_conflicts, transaction

_ANY_SUPERSEDED_MARK = "SELECT 1 FROM marks GROUP BY session_id HAVING count(*) > 1 LIMIT 1"
# All marks are replaced: a lake's file without any row is removed, so small files do not pile up with a few rows each.
_REPLACE_MARKS = (
    "CREATE OR REPLACE TEMP TABLE last_marks AS SELECT session_id, max(number) AS number, "
    "arg_max(committed_at, number) AS committed_at FROM marks GROUP BY session_id",
    "DELETE FROM marks WHERE session_id IN (SELECT session_id FROM last_marks)",
    "INSERT INTO marks FROM last_marks",
)
_SUPERSEDED_OWNERS = """
DELETE FROM session_owners WHERE EXISTS (
    FROM (SELECT session_id, max(epoch) AS epoch FROM session_owners GROUP BY session_id) AS last
    WHERE last.session_id = session_owners.session_id AND last.epoch > session_owners.epoch
)
"""
# What a job had counted before the end that the same agent recorded of it.
_SUPERSEDED_STATES = """
DELETE FROM owners USING (
    SELECT session_id, owner_id, device_id, time, observed_seconds FROM owners WHERE ended_at IS NOT NULL
) AS ended
WHERE ended.session_id = owners.session_id AND ended.owner_id = owners.owner_id
    AND ended.device_id IS NOT DISTINCT FROM owners.device_id
    AND ended.time > owners.time AND ended.observed_seconds >= owners.observed_seconds
"""
# The last minute of commits shows whether a collector lives.
_OLD_COMMITS = "DELETE FROM commits WHERE collector IS NOT NULL AND committed_at < now()::TIMESTAMP - INTERVAL 1 DAY"

# Old snapshots keep old files, and no query takes a day. A younger file may belong to a commit in progress.
_DAY_AGO = "older_than => now() - INTERVAL 1 DAY"

# Without ducklake_rewrite_data_files: with DuckDB 1.5.5 an assertion of DuckLake can fail in it ("row id limit is
# larger than the row count of the file") while others write. Retention removes whole days, and so whole files.
_TIDY_LAKE = (
    f"ducklake_merge_adjacent_files('{LAKE}')",
    f"ducklake_expire_snapshots('{LAKE}', {_DAY_AGO})",
    f"ducklake_cleanup_old_files('{LAKE}', {_DAY_AGO})",
    f"ducklake_delete_orphaned_files('{LAKE}', {_DAY_AGO})",
)

# A few rows that every commit reads and takeovers replace at any moment: files would obstruct both.
_STAY_INLINED = ("commits", "session_owners")

# DuckLake attaches the database of its own tables under this name.
_CATALOG = f"__ducklake_metadata_{LAKE}"

# DuckLake 1.5.5 removes rows from its catalog only when it moves them into files. For tables that stay inlined, its
# specification tells which rows no snapshot shows: a row is visible from begin_snapshot up to, not including,
# end_snapshot.
_INLINED_TABLES = f"""
SELECT DISTINCT inlined.table_name FROM {_CATALOG}.ducklake_inlined_data_tables AS inlined
JOIN {_CATALOG}.ducklake_table AS tables USING (table_id) WHERE list_contains(?, tables.table_name)
"""  # noqa: S608 - constant names

# Tables with files, whose deletions can be in the catalog, and the tables in it that hold rows of others.
_TABLES_WITH_FILES = f"""
SELECT DISTINCT tables.table_name FROM {_CATALOG}.ducklake_data_file JOIN {_CATALOG}.ducklake_table AS tables
USING (table_id)
"""  # noqa: S608 - constant names
_PLACES_OF_ROWS = f"""
SELECT DISTINCT tables.table_name, inlined.table_name FROM {_CATALOG}.ducklake_inlined_data_tables AS inlined
JOIN {_CATALOG}.ducklake_table AS tables USING (table_id)
"""  # noqa: S608 - constant names
_REMOVE_ENDED = f"""
DELETE FROM {_CATALOG}."{{}}" WHERE end_snapshot <= (SELECT min(snapshot_id) FROM {_CATALOG}.ducklake_snapshot)
"""  # noqa: S608 - names that DuckLake gave

_FILES = f"SELECT coalesce(sum(file_count), 0)::BIGINT, coalesce(sum(file_size_bytes), 0)::BIGINT FROM ducklake_table_info('{LAKE}')"  # noqa: E501, S608 - a constant name


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeFiles:
    """The current files of a lake's tables, without those that older snapshots keep."""

    count: int
    size_bytes: int


def lay_out(connection: duckdb.DuckDBPyConnection, before: frozenset[str]) -> None:
    """Partition the large tables made since `before` by day, and sort samples as they compress best.

    The platform is not part of it, because samples do not carry it. Nor is a bucket of nodes: every commit would make a
    file of each, and the order within files already serves queries for one node.
    """
    connection.execute(f"CALL {LAKE}.set_option('parquet_compression', 'zstd')")
    tables = table_columns(connection)
    for table in sorted(filter(is_large, tables.keys() - before)):
        connection.execute(f'ALTER TABLE "{table}" SET PARTITIONED BY (year(time), month(time), day(time))')
        connection.execute(f'ALTER TABLE "{table}" SET SORTED BY ({sort_order(table, tables[table])})')


def fold_bookkeeping(connection: duckdb.DuckDBPyConnection) -> None:
    """Remove superseded marks and takeovers, and old commits."""
    marks = [_REPLACE_MARKS] if connection.execute(_ANY_SUPERSEDED_MARK).fetchone() else []
    for statements in (*marks, (_SUPERSEDED_OWNERS,), (_OLD_COMMITS,)):

        def attempt(statements: Sequence[str] = statements) -> None:
            with transaction(connection):
                for statement in statements:
                    connection.execute(statement)

        retry_conflicts(attempt)


def fold_states(connection: duckdb.DuckDBPyConnection) -> None:
    """Remove the states that ended jobs had before; not in a lake, whose files keep removed rows."""
    connection.execute(_SUPERSEDED_STATES)


def tidy_lake(connection: duckdb.DuckDBPyConnection) -> None:
    """Write inlined rows into files, merge small files, and remove unused ones, while others may append."""
    flushes = [
        f"ducklake_flush_inlined_data('{LAKE}', table_name => '{table}')"
        for table in sorted(table_columns(connection).keys() & filled_tables(connection) - {*_STAY_INLINED})
    ]
    for call in (*flushes, *_TIDY_LAKE):
        retry_conflicts(lambda call=call: connection.execute(f"SELECT count(*) FROM {call}").fetchall())  # type: ignore[misc]  # noqa: S608 - names of the schema
    for (table,) in connection.execute(_INLINED_TABLES, [_STAY_INLINED]).fetchall():
        connection.execute(_REMOVE_ENDED.format(table))


def filled_tables(connection: duckdb.DuckDBPyConnection) -> set[str]:
    """Return the tables of a lake that have files, or rows in its catalog.

    This takes as long as reading one table: the others need not be read or flushed.
    """

    def find() -> set[str]:
        tables = {table for (table,) in connection.execute(_TABLES_WITH_FILES).fetchall()}
        for table, place in connection.execute(_PLACES_OF_ROWS).fetchall():
            if table not in tables and connection.execute(f'FROM {_CATALOG}."{place}" LIMIT 1').fetchone():
                tables.add(table)
        return tables

    return retry_conflicts(find)


def lake_files(connection: duckdb.DuckDBPyConnection) -> LakeFiles:
    """Return the number and the bytes of a lake's current files."""
    ((count, size_bytes),) = connection.execute(_FILES).fetchall()
    return LakeFiles(count=count, size_bytes=size_bytes)
