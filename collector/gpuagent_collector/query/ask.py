"""The interface through which everything reads the store."""

from collections.abc import Sequence
from typing import Any, Protocol


class Ask(Protocol):
    """A callable that runs one SELECT."""

    def __call__(self, sql: str, parameters: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Return the rows of `sql`, with the values of its `?`."""
        ...
