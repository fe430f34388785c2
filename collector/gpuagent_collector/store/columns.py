"""What the store's tables look like, read from the store itself."""

from collections.abc import Mapping

import duckdb

# Column → DuckDB type, in the table's order.
Columns = Mapping[str, str]

# Columns that the collector fills in from the stream's hello. Only tables that have both take rows from agents, but
# for those of rollups, which the collector makes.
STAMPED = ("session_id", "node_id")

# Ends of the names of tables of samples, and of those that hold what these were thinned out to.
SAMPLES, ROLLUPS = "_samples", "_rollups"

_COLUMNS = """
SELECT table_name, column_name, data_type
FROM duckdb_columns() JOIN duckdb_tables() USING (database_name, schema_name, table_name)
WHERE database_name = current_database()
ORDER BY table_name, column_index
"""


def table_columns(connection: duckdb.DuckDBPyConnection) -> dict[str, dict[str, str]]:
    """Return the columns of every table of the store; views are left out."""
    tables: dict[str, dict[str, str]] = {}
    for table, column, data_type in connection.execute(_COLUMNS).fetchall():
        tables.setdefault(table, {})[column] = data_type
    return tables


def agent_tables(connection: duckdb.DuckDBPyConnection) -> dict[str, Columns]:
    """Return the tables that agents may write, and of each the columns that they may name."""
    return {
        table: {name: data_type for name, data_type in columns.items() if name not in STAMPED}
        for table, columns in table_columns(connection).items()
        if columns.keys() >= set(STAMPED) and not table.endswith(ROLLUPS)
    }
