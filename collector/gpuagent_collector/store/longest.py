"""The longest texts of a store: what a statement can make of a row depends on them."""

import re
from collections.abc import Sequence

import duckdb

from gpuagent_collector.store.columns import is_large, table_columns

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


def measure_texts(connection: duckdb.DuckDBPyConnection, longest: LongestTexts, *, is_lake: bool) -> None:
    """Count the texts that a store has: those of a file by DuckDB's statistics, those of a lake by reading them.

    In a lake, identifiers of runs and texts of samples are left out: they are short, and there are many.
    """
    for table, types in table_columns(connection).items():
        columns = [name for name, data_type in types.items() if data_type in _TEXTS]
        if is_lake:
            columns = [] if is_large(table) else [name for name in columns if name != "run_id"]
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
