"""DuckDB alone: the upper limit of a collector on a DuckDB file.

The rows lie in memory as Arrow tables, and are inserted in as large pieces as the collector commits at most.
"""

import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from benchmarks.gpu_series import Rows, arrow
from gpuagent_collector.ingest.writer import Gathering

# Of a message: 29 columns of eight bytes.
_BYTES_A_ROW = 232


@dataclass(frozen=True, slots=True, kw_only=True)
class Inserted:
    """The resources of a process for its inserts."""

    wall_seconds: float
    cpu_seconds: float


def insert_all(file: Path, nodes: Sequence[Rows], seconds_a_message: int) -> Inserted:
    """Insert the rows into a new file, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as pool:
        return pool.submit(_insert_all, file, nodes, seconds_a_message).result()


def sum_of(file: Path, table: str, column: str) -> tuple[int, float]:
    """Return the number of values in a column of a closed file, and their sum."""
    with duckdb.connect(str(file), read_only=True) as connection:
        row = connection.execute(f'SELECT count("{column}"), sum("{column}")::DOUBLE FROM {table}').fetchone()
    assert row is not None
    return int(row[0]), float(row[1] or 0)


def _insert_all(file: Path, nodes: Sequence[Rows], seconds_a_message: int) -> Inserted:
    pieces = list(_pieces(nodes, seconds_a_message))
    with duckdb.connect(str(file)) as connection:
        rows = pieces[0]
        connection.execute("CREATE TABLE samples AS SELECT * FROM rows LIMIT 0")
        start, before = time.perf_counter(), os.times()
        for rows in pieces:  # noqa: B007 - DuckDB finds it by its name
            connection.execute("INSERT INTO samples SELECT * FROM rows")
        wall_seconds, after = time.perf_counter() - start, os.times()
    cpu_seconds = after.user + after.system - before.user - before.system
    return Inserted(wall_seconds=wall_seconds, cpu_seconds=cpu_seconds)


def _pieces(nodes: Sequence[Rows], seconds: int) -> Iterator[pa.Table]:
    """Yield rows of all nodes in turns, as they reach a collector."""
    waiting: list[pa.Table] = []
    size_bytes = 0
    for messages in zip(*(rows.messages(seconds) for rows in nodes), strict=True):
        waiting += [arrow(message) for message in messages]
        size_bytes += sum(len(message) for message in messages) * _BYTES_A_ROW
        if size_bytes >= Gathering().size_bytes:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting, size_bytes = [], 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()
