"""The interface through which everything reads the store."""

from collections.abc import Sequence
from typing import Any, Protocol

import duckdb

from gpuagent_collector.query.execute import Parameter


class Ask(Protocol):
    """A callable that runs one SELECT."""

    def __call__(self, sql: str, parameters: Sequence[Parameter] = ()) -> list[dict[str, Any]]:
        """Return the rows of `sql`; `parameters` are the values of its `?`."""
        ...


def ask_within(connection: duckdb.DuckDBPyConnection) -> Ask:
    """Return a way to ask within the open transaction of a connection; it raises duckdb.Error."""

    def ask(sql: str, parameters: Sequence[Parameter] = ()) -> list[dict[str, Any]]:
        return connection.execute(sql, list(parameters)).to_arrow_table().to_pylist()

    return ask
