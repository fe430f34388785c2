"""Queries of the pages to the store, in this process, with the bounds of clients' queries."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import duckdb

from gpuagent_collector.query.ask import Ask, rows_of
from gpuagent_collector.query.execute import Execution, Limits, Parameter
from gpuagent_common.errors import GpuAgentError

# Prometheus waits for 10 s by default.
_LONGEST_SECONDS = 8.0

Connect = Callable[[], duckdb.DuckDBPyConnection]


class Asker:
    """Runs one SELECT and returns its rows. Any thread may call it."""

    def __init__(self, connect: Connect, limits: Limits) -> None:
        """Take the function that opens a connection to the store, and the limits of a query."""
        self._connect = connect
        self._limits = replace(limits, timeout_seconds=_LONGEST_SECONDS)
        self._running: set[Execution] = set()
        self._closed = False

    def __call__(self, sql: str, parameters: Sequence[Parameter] = ()) -> list[dict[str, Any]]:
        """Return the rows of a trusted statement, with the values of its `?`.

        Raises GpuAgentError: it took too long, or too much memory, or its answer is too large.
        """
        return self._ask(self._connect, sql, parameters)

    def through(self, connect: Connect) -> Ask:
        """Return a function that asks through other connections, which may show less, and closes with this one."""
        return lambda sql, parameters=(): self._ask(connect, sql, parameters)

    def _ask(self, connect: Connect, sql: str, parameters: Sequence[Parameter]) -> list[dict[str, Any]]:
        execution = Execution(connect, self._limits)
        self._running.add(execution)
        if self._closed:
            execution.cancel()  # a page that goes on asking would keep the store open
        try:
            rows = execution.start(sql, parameters).read_all()
            if execution.truncated:
                raise GpuAgentError("the answer is larger than the collector gives")
            return rows_of(rows)
        finally:
            execution.close()
            self._running.discard(execution)

    def close(self) -> None:
        """Stop running queries and reject new ones, before the store is closed."""
        self._closed = True
        for execution in tuple(self._running):
            execution.close()
