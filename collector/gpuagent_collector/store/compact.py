"""Folding together what many small commits left behind."""

from dataclasses import dataclass

import duckdb

from gpuagent_collector.store.columns import table_columns
from gpuagent_collector.store.instance import LAKE
from gpuagent_collector.store.transactions import transaction, until_first

_ANY_SUPERSEDED_MARK = "SELECT 1 FROM marks GROUP BY session_id HAVING count(*) > 1 LIMIT 1"
# All of them: of a file that has lost every row nothing stays, and so no small files pile up with a few rows each.
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
# Whether a collector lives is told by its last minute.
_OLD_COMMITS = "DELETE FROM commits WHERE collector IS NOT NULL AND committed_at < now()::TIMESTAMP - INTERVAL 1 DAY"

# Old snapshots keep old files; nobody reads one for a day. A younger file may belong to a commit on its way.
_DAY_AGO = "older_than => now() - INTERVAL 1 DAY"

# Not ducklake_rewrite_data_files: with DuckDB 1.5.5 an assertion of DuckLake's can fail in it ("row id limit is larger
# than the row count of the file") while others write. Retention removes whole days in the end, and so whole files.
_TIDY_LAKE = (
    f"ducklake_merge_adjacent_files('{LAKE}')",
    f"ducklake_expire_snapshots('{LAKE}', {_DAY_AGO})",
    f"ducklake_cleanup_old_files('{LAKE}', {_DAY_AGO})",
    f"ducklake_delete_orphaned_files('{LAKE}', {_DAY_AGO})",
)

# A few rows, which every commit reads and takeovers replace at any moment: files would be in the way of both.
_STAY_INLINED = ("commits", "session_owners")

# Under this name DuckLake attaches the database of its own tables.
_CATALOG = f"__ducklake_metadata_{LAKE}"

# DuckLake 1.5.5 removes rows from its catalog only where it moves them into files. Of those that stay there, who no
# snapshot shows any more is told by what DuckLake specifies of its tables: a row is there from begin_snapshot up to,
# and not in, end_snapshot.
_INLINED_TABLES = f"""
SELECT DISTINCT inlined.table_name FROM {_CATALOG}.ducklake_inlined_data_tables AS inlined
JOIN {_CATALOG}.ducklake_table AS tables USING (table_id) WHERE list_contains(?, tables.table_name)
"""  # noqa: S608 - names of ours
_REMOVE_ENDED = f"""
DELETE FROM {_CATALOG}."{{}}" WHERE end_snapshot <= (SELECT min(snapshot_id) FROM {_CATALOG}.ducklake_snapshot)
"""  # noqa: S608 - names of DuckLake's

_FILES = f"SELECT coalesce(sum(file_count), 0)::BIGINT, coalesce(sum(file_size_bytes), 0)::BIGINT FROM ducklake_table_info('{LAKE}')"  # noqa: E501, S608 - a name of ours


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeFiles:
    """What a lake's tables lie in now; files that older snapshots keep are not counted."""

    count: int
    size_bytes: int


def fold_bookkeeping(connection: duckdb.DuckDBPyConnection) -> None:
    """Remove marks and takeovers that later ones have replaced, and old commits.

    Raises:
        duckdb.Error: the store failed; it is as it was, or some of it is done.
    """
    if connection.execute(_ANY_SUPERSEDED_MARK).fetchone():
        _write(connection, *_REPLACE_MARKS)
    for statement in (_SUPERSEDED_OWNERS, _OLD_COMMITS):
        _write(connection, statement)


def tidy_lake(connection: duckdb.DuckDBPyConnection) -> None:
    """Write inlined rows into files, merge small files, and remove what nobody reads.

    Others may append at the same time.

    Raises:
        duckdb.Error: the store failed; every row is as it was.
    """
    flushes = [
        f"ducklake_flush_inlined_data('{LAKE}', table_name => '{table}')"
        for table in sorted(table_columns(connection).keys() - {*_STAY_INLINED})
    ]
    for call in (*flushes, *_TIDY_LAKE):
        until_first(lambda call=call: connection.execute(f"SELECT count(*) FROM {call}").fetchall())  # type: ignore[misc]  # noqa: S608 - names of the schema
    for (table,) in connection.execute(_INLINED_TABLES, [_STAY_INLINED]).fetchall():
        connection.execute(_REMOVE_ENDED.format(table))


def lake_files(connection: duckdb.DuckDBPyConnection) -> LakeFiles:
    """Return how many files a lake's tables lie in, and their bytes.

    Raises:
        duckdb.Error: the store failed.
    """
    row = connection.execute(_FILES).fetchone()
    count, size_bytes = row or (0, 0)
    return LakeFiles(count=count, size_bytes=size_bytes)


def _write(connection: duckdb.DuckDBPyConnection, *statements: str) -> None:
    def attempt() -> None:
        with transaction(connection):
            for statement in statements:
                connection.execute(statement)

    until_first(attempt)
