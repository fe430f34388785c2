"""The interface through which everything reads the store."""

from collections.abc import Sequence
from typing import Any, Protocol

from gpuagent_collector.query.execute import Parameter


class Ask(Protocol):
    """A callable that runs one SELECT."""

    def __call__(self, sql: str, parameters: Sequence[Parameter] = ()) -> list[dict[str, Any]]:
        """Return the rows of `sql`; `parameters` are the values of its `?`."""
        ...
