"""Tables and columns of the store, read from the store itself, their longest texts, and literals of SQL."""

import re
from collections.abc import Collection, Mapping, Sequence
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


# What a text counts at least: few are longer.
USUAL_TEXT_BYTES = 256

_TEXTS = frozenset({"JSON", "VARCHAR"})

# DuckDB's statistics of a column: the most bytes of any text that it ever had.
_STATISTIC = re.compile(r"Max String Length: (\d+)")

# Above this, the texts themselves are measured: those that were deleted count in statistics until they are compacted.
_MEASURED_BYTES = 16 * 1024


class LongestTexts:
    """The most bytes of a text in the columns of a name, whatever their table. It grows only. Any thread may use it."""

    def __init__(self) -> None:
        self._bytes: dict[str, int] = {}

    def note(self, column: str, size_bytes: int) -> None:
        """Count a text of this size, before it is committed."""
        if size_bytes > self.of(column):
            self._bytes = {**self._bytes, column: size_bytes}

    def of(self, column: str) -> int:
        """Return the most bytes of a text in the columns of this name, at least USUAL_TEXT_BYTES."""
        return self._bytes.get(column, USUAL_TEXT_BYTES)

    def all(self) -> dict[str, int]:
        """Return the most bytes by column, in an object that never changes: another one means other sizes."""
        return self._bytes


def measure_texts(
    connection: duckdb.DuckDBPyConnection, longest: LongestTexts, filled: Collection[str] | None = None
) -> None:
    """Count the texts that a store has: those of a file by DuckDB's statistics, those of a lake by reading them.

    `filled` are the tables of a lake with rows; None: the store is a file. In a lake, identifiers of runs and texts of
    samples are left out: they are short, and there are many.
    """
    is_lake = filled is not None
    for table, types in table_columns(connection).items():
        columns = [name for name, data_type in types.items() if data_type in _TEXTS]
        if filled is not None:
            is_read = table in filled and not is_large(table)
            columns = [name for name in columns if is_read and name != "run_id"]
        if columns:
            sizes = _read_sizes(connection, table, columns) if is_lake else _known_sizes(connection, table, columns)
            for name, size_bytes in zip(columns, sizes, strict=True):
                longest.note(name, size_bytes)


def _known_sizes(connection: duckdb.DuckDBPyConnection, table: str, columns: Sequence[str]) -> list[int]:
    asked = ", ".join(f'stats("{name}")' for name in columns)
    (*rows,) = connection.execute(f'SELECT {asked} FROM "{table}" LIMIT 1').fetchall()  # noqa: S608 - names of the schema
    sizes = []
    for name, statistics in zip(columns, rows[0] if rows else (), strict=bool(rows)):
        known = _STATISTIC.search(statistics)
        size_bytes = int(known[1]) if known else _MEASURED_BYTES + 1
        if size_bytes > _MEASURED_BYTES:
            (size_bytes,) = _read_sizes(connection, table, [name])
        sizes.append(size_bytes)
    return sizes or [0] * len(columns)


def _read_sizes(connection: duckdb.DuckDBPyConnection, table: str, columns: Sequence[str]) -> list[int]:
    asked = ", ".join(f'coalesce(max(strlen("{name}")), 0)' for name in columns)
    ((*sizes,),) = connection.execute(f'SELECT {asked} FROM "{table}"').fetchall()  # noqa: S608 - names of the schema
    return sizes
