"""A store that fails on demand."""

from typing import Any

import duckdb


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
        if fault == "fatal":
            raise duckdb.FatalException("the database has been invalidated")
        self._connection.commit()
        if fault == "after commit":
            raise duckdb.IOException("the answer got lost")
