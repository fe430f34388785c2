"""How a lake's files are cut and sorted, for those who ask for a day of a node."""

import duckdb

from gpuagent_collector.store.columns import ROLLUPS, SAMPLES, table_columns
from gpuagent_collector.store.instance import LAKE

_BY_DAY = ("year(time)", "month(time)", "day(time)")
_SORTED = ("node_id", "time")


def is_large(table: str) -> bool:
    """Return whether a table grows with time, not with what is run."""
    return table.endswith((SAMPLES, ROLLUPS)) or table == "steps"


def lay_out(connection: duckdb.DuckDBPyConnection, before: frozenset[str]) -> None:
    """Have the large tables that were made since `before` kept in files of a day, sorted by node and time.

    The platform is no part of it: samples do not carry it, and their nodes do. Neither is a bucket of nodes: every
    commit would make a file of each, and who asks for a node is led to it by the order in the files.
    """
    connection.execute(f"CALL {LAKE}.set_option('parquet_compression', 'zstd')")
    for table in sorted(filter(is_large, table_columns(connection).keys() - before)):
        connection.execute(f'ALTER TABLE "{table}" SET PARTITIONED BY ({", ".join(_BY_DAY)})')
        connection.execute(f'ALTER TABLE "{table}" SET SORTED BY ({", ".join(_SORTED)})')
