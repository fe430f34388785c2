"""Every table of a store at one moment, while others write."""

from collections.abc import Generator
from contextlib import closing

import duckdb
import pyarrow as pa

from gpuagent_collector.errors import StoreError
from gpuagent_collector.query.execute import BATCH_ROWS
from gpuagent_collector.store import Store
from gpuagent_collector.store.columns import table_columns

# A table's name and its rows, which must be read before the next table.
TableRows = tuple[str, pa.RecordBatchReader]


def tables_of(store: Store) -> Generator[TableRows, None, None]:
    """Yield each table of the store, in one transaction that lasts as long as the iterator.

    Raises:
        StoreError: the store cannot be read; reading a table's rows raises duckdb.Error or OSError.
    """
    with closing(store.connect()) as connection:
        try:
            connection.execute("BEGIN TRANSACTION READ ONLY")
            for table in sorted(table_columns(connection)):
                yield table, connection.execute(f'FROM "{table}"').to_arrow_reader(BATCH_ROWS)
        except duckdb.Error as error:
            raise StoreError(f"cannot read the store {store.spec}: {error}") from error
