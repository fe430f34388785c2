"""Writing a store that no collector holds: all of it, or nothing."""

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import duckdb

from gpuagent_collector.errors import StoreError
from gpuagent_collector.store import Store


@contextmanager
def transaction(store: Store) -> Iterator[duckdb.DuckDBPyConnection]:
    """Give a connection in one transaction, which is committed at the end; whatever fails leaves the store as it was.

    Raises:
        StoreError: DuckDB cannot do what it is asked to.
    """
    with closing(store.connect()) as connection:
        connection.begin()
        try:
            yield connection
            connection.commit()
        except duckdb.Error as error:
            raise StoreError(f"{error}; the store {store.spec} is as it was".replace("\n", " ")) from error
        finally:
            with suppress(duckdb.Error):  # committed
                connection.rollback()


def open_existing(name: str) -> Store:
    """Open a store for writing; unlike `Store.open`, make none.

    Raises:
        StoreError: it is not there, cannot be opened, or a collector holds it.
    """
    return Store.open(name, create=False)
