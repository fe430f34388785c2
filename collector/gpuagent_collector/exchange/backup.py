"""Copies of a store that can take its place."""

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

import duckdb
import pyarrow as pa

from gpuagent_collector.errors import StoreError
from gpuagent_collector.exchange.transaction import transaction
from gpuagent_collector.query.reader import StreamingReader
from gpuagent_collector.schema import load_migrations
from gpuagent_collector.store import Store, StoreSpec
from gpuagent_common.errors import GpuAgentError, MisuseError

# Some 200,000 rows: an insert of few costs as much as one of many.
_BATCHES_AT_ONCE = 100

# Called with each table and its number of rows when it is copied.
Progress = Callable[[str, int], None]


def backup(reader: StreamingReader, file: Path, progress: Progress) -> int:
    """Copy everything that `reader` reads, as of one moment, into a new DuckDB file; return the number of rows.

    Marks are copied too, so that a restored store recognises messages that agents send again. The file appears under
    its name only when it is complete.

    Raises:
        MisuseError: the file exists already.
        GpuAgentError: the store cannot be read, the file cannot be written, or the schema is unknown.
    """
    if file.exists():
        raise MisuseError(f"{file} exists already; name a new file")
    version = _read_version(reader)
    unfinished = file.with_name(f".{file.name}.part")
    try:
        rows = _copy(reader, unfinished, version, progress)
        unfinished.replace(file)
    except OSError as error:
        raise GpuAgentError(f"cannot write {file}: {error.strerror or error}") from error
    finally:
        for left in (unfinished, unfinished.with_name(f"{unfinished.name}.wal")):
            left.unlink(missing_ok=True)
    return rows


def _read_version(reader: StreamingReader) -> int:
    ((stored,),) = reader.sql("SELECT max(version) FROM schema_migrations").to_pydict().values()
    if stored > load_migrations()[-1].version:
        raise GpuAgentError(f"{reader.source} has schema {stored}, newer than this command knows; upgrade gpuagent")
    return int(stored)


def _copy(reader: StreamingReader, unfinished: Path, version: int, progress: Progress) -> int:
    unfinished.unlink(missing_ok=True)
    known = [migration for migration in load_migrations() if migration.version <= version]
    copied = 0
    with (
        Store.open(StoreSpec.parse(str(unfinished)), migrations=known) as store,
        transaction(store) as connection,
        closing(reader.snapshot()) as tables,
    ):
        for table, table_rows in tables:
            rows = _fill(connection, table, table_rows)
            progress(table, rows)
            copied += rows
    return copied


def _fill(connection: duckdb.DuckDBPyConnection, table: str, rows: pa.RecordBatchReader) -> int:
    connection.execute(f'DELETE FROM "{table}"')  # noqa: S608 - rows that a migration inserted
    copied = 0
    for piece in _read_pieces(rows):
        connection.register("incoming", piece)
        connection.execute(f'INSERT INTO "{table}" BY NAME FROM incoming')
        connection.unregister("incoming")
        copied += piece.num_rows
    return copied


def _read_pieces(rows: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Yield many rows at once, read here because DuckDB would replace the text of a reader's error with its own."""
    try:
        while batches := list(islice(rows, _BATCHES_AT_ONCE)):
            yield pa.Table.from_batches(batches)
    except OSError as error:
        raise StoreError(f"the copy broke off: {str(error).splitlines()[0]}") from error
