"""Changes of a store that no collector holds: complete, or none."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

import duckdb

from gpuagent_collector.errors import StoreError
from gpuagent_collector.store import Store, transactions


@contextmanager
def transaction(store: Store) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection in one transaction, which is committed on exit; a failure leaves the store as it was.

    Raises:
        StoreError: DuckDB failed.
    """
    with closing(store.connect()) as connection:
        try:
            with transactions.transaction(connection):
                yield connection
        except duckdb.Error as error:
            raise StoreError(f"{error}; the store {store.spec} is unchanged".replace("\n", " ")) from error


def open_existing(name: str) -> Store:
    """Open a store for writing; unlike `Store.open`, never create it.

    Raises:
        StoreError: the store is missing, cannot be opened, or a collector holds it.
    """
    return Store.open(name, create=False)
