"""A store that fails on demand."""

from typing import Any, cast

import duckdb

from gpuagent_collector.store import Store


class FaultyConnection:
    """A real connection whose next commits fail: before they are durable, just after, or for good."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self.faults: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def commit(self) -> None:
        fault = self.faults.pop(0) if self.faults else None
        if fault == "before commit":
            raise duckdb.IOException("No space left on device")
        if fault == "out of memory":
            raise duckdb.OutOfMemoryException("failed to allocate data of size 256 KiB")
        if fault == "fatal":
            raise duckdb.FatalException("the database has been invalidated")
        self._connection.commit()
        if fault == "after commit":
            raise duckdb.IOException("the answer got lost")


class PickyConnection(FaultyConnection):
    """A real connection to a store that finds fault, where it stores them, with rows whose core is negative."""

    def execute(self, sql: str, *arguments: object) -> duckdb.DuckDBPyConnection:
        if sql.startswith('INSERT INTO "core_samples"'):
            ((lowest,),) = self._connection.execute("SELECT min(core) FROM incoming").fetchall()
            if lowest < 0:
                raise duckdb.ConversionException("a negative core")
        return self._connection.execute(sql, *arguments)


class FailingStore:
    def __init__(self, store: Store, faults: list[str]) -> None:
        self.spec = store.spec
        self._store = store
        self._faults = faults

    def connect(self) -> FaultyConnection:
        connection = FaultyConnection(self._store.connect())
        connection.faults = self._faults
        return connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def failing(store: Store, faults: list[str]) -> Store:
    return cast("Store", FailingStore(store, faults))
