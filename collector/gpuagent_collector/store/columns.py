"""Tables and columns of the store, read from the store itself, and literals of SQL."""

from collections.abc import Mapping
from pathlib import Path

import duckdb

from gpuagent_collector.schema import schema_relations

# Column → DuckDB type, in the table's order.
Columns = Mapping[str, str]

# Columns that the collector fills in from the stream's hello. Only tables with both take rows from agents, except
# tables of rollups, which the collector writes.
STAMPED = ("session_id", "node_id")

# Name endings of tables of samples, and of the tables of their rollups.
SAMPLES, ROLLUPS = "_samples", "_rollups"

# Table → columns by which its rows describe one thing. The first description counts: no reader expects another.
_DESCRIBED: Mapping[str, tuple[str, ...]] = {"sessions": ("session_id",), "run_requests": ("run_id", "node_id")}

_COLUMNS = """
SELECT table_name, column_name, data_type
FROM duckdb_columns() JOIN duckdb_tables() USING (database_name, schema_name, table_name)
WHERE database_name = current_database() AND schema_name = 'main' AND list_contains(?, table_name)
ORDER BY table_name, column_index
"""


def table_columns(connection: duckdb.DuckDBPyConnection) -> dict[str, dict[str, str]]:
    """Return the columns of every table of the schema, without views and without tables of users."""
    tables: dict[str, dict[str, str]] = {}
    for table, column, data_type in connection.execute(_COLUMNS, [list(schema_relations())]).fetchall():
        tables.setdefault(table, {})[column] = data_type
    return tables


def agent_tables(connection: duckdb.DuckDBPyConnection) -> dict[str, Columns]:
    """Return the tables that agents may write, each with the columns that agents may name."""
    return {
        table: {name: data_type for name, data_type in columns.items() if name not in STAMPED}
        for table, columns in table_columns(connection).items()
        if columns.keys() >= set(STAMPED) and not table.endswith(ROLLUPS)
    }


def insert_from(rows: str, table: str, columns: str = "*") -> str:
    """Return the statement that adds rows to a table, without second descriptions of what the table has already.

    Args:
        rows: the name of the relation that has them.
        table: a table of the schema.
        columns: what to select of them.
    """
    if table not in _DESCRIBED:
        return f'INSERT INTO "{table}" BY NAME SELECT {columns} FROM "{rows}"'  # noqa: S608 - names of the schema
    keys = ", ".join(_DESCRIBED[table])
    news = f'"{rows}" ANTI JOIN "{table}" USING ({keys})'
    return f'INSERT INTO "{table}" BY NAME SELECT DISTINCT ON ({keys}) {columns} FROM {news}'  # noqa: S608 - as above


def is_large(table: str) -> bool:
    """Return whether a table grows with time, not with the number of runs."""
    return table.endswith((SAMPLES, ROLLUPS)) or table == "steps"


def quoted(value: Path | str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + str(value).replace("'", "''") + "'"
