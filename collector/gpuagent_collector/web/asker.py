"""Questions of the pages to the store, in this process, bounded as those of clients are."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import duckdb

from gpuagent_collector.query.execute import Execution, Limits

_LONGEST_SECONDS = 8.0
"""Prometheus waits for 10 s, unless told otherwise."""


class Asker:
    """Runs one SELECT and returns its rows. Any thread may call it."""

    def __init__(self, connect: Callable[[], duckdb.DuckDBPyConnection], limits: Limits) -> None:
        """Take what makes a connection to the store of its own, and what a query may take at most."""
        self._connect = connect
        self._limits = replace(limits, timeout_seconds=_LONGEST_SECONDS)
        self._running: set[Execution] = set()

    def __call__(self, sql: str, parameters: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Return the rows of a statement of ours, with the values of its `?`.

        Raises:
            CollectorError: it took too long, or too much memory.
        """
        execution = Execution(self._connect, self._limits)
        self._running.add(execution)
        try:
            return execution.start(sql, parameters).read_all().to_pylist()
        finally:
            execution.close()
            self._running.discard(execution)

    def close(self) -> None:
        """Stop what runs, before the store is closed."""
        for execution in tuple(self._running):
            execution.close()
