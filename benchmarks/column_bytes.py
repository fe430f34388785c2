"""`python -m benchmarks.column_bytes STORE.duckdb [TABLE]`: the bytes of a closed DuckDB file by column.

DuckDB tells where each segment begins; one ends where the next in its block begins, or with the block.
"""

import argparse
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import duckdb
from rich.table import Table

from benchmarks.machine import show

_BLOCK_BYTES = 262_144

_SEGMENTS = """
SELECT column_name, segment_type, compression, block_id, block_offset, len(additional_block_ids), count
FROM pragma_storage_info(?) WHERE block_id >= 0
"""


@dataclass(slots=True, kw_only=True)
class Column:
    """The size of a column, bitmaps of absent values included."""

    size_bytes: int = 0
    compressions: set[str] = field(default_factory=set)


def column_bytes(connection: duckdb.DuckDBPyConnection, table: str) -> Mapping[str, Column]:
    """Return the size of each column of a table in the file."""
    segments = connection.execute(_SEGMENTS, [table]).fetchall()
    starts = defaultdict(set)
    for *_, block, offset, _more, _count in segments:
        starts[block].add(offset)
    ends = {
        (block, start): end
        for block, offsets in starts.items()
        for start, end in zip(sorted(offsets), [*sorted(offsets)[1:], _BLOCK_BYTES], strict=True)
    }
    columns: dict[str, Column] = defaultdict(Column)
    for name, kind, compression, block, offset, more, _count in segments:
        columns[name].size_bytes += ends[block, offset] - offset + more * _BLOCK_BYTES
        if kind != "VALIDITY":
            columns[name].compressions.add(compression)
    return columns


def main() -> None:
    """Print the columns of a table, the largest first."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(": ")[2])
    parser.add_argument("file", metavar="STORE.duckdb")
    parser.add_argument("table", nargs="?", default="gpu_samples")
    given = parser.parse_args()
    table = given.table
    with duckdb.connect(given.file, read_only=True) as connection:
        columns = column_bytes(connection, table)
        row = connection.execute(f"SELECT count(*), {', '.join(f'count({name})' for name in columns)} FROM {table}")
        rows, *counts = row.fetchone() or (0,)
    shown = Table("column", "bytes a row", "bytes a value", "values", "compression")
    by_size = sorted(zip(columns.items(), counts, strict=True), key=lambda each: -each[0][1].size_bytes)
    for (name, column), count in by_size:
        a_row, a_value = column.size_bytes / max(rows, 1), column.size_bytes / max(count, 1)
        shown.add_row(name, f"{a_row:.2f}", f"{a_value:.2f}", f"{count:,}", ", ".join(sorted(column.compressions)))
    total = sum(column.size_bytes for column in columns.values())
    shown.add_row("all", f"{total / max(rows, 1):.2f}", "", f"{rows:,} rows", "")
    show(shown)


if __name__ == "__main__":
    main()
