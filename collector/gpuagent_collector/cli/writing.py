"""The option of commands that change a store."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def changed_store_option(command: Command) -> Command:
    """Add --store; the command gets `store_name: str`."""

    @wraps(command)
    def with_store(*args: Any, store: str | None, **rest: Any) -> object:
        from gpuagent_collector.store.spec import DEFAULT_STORE

        return command(*args, store_name=store or DEFAULT_STORE, **rest)

    click.option(
        "--store",
        metavar="FILE",
        help="The store to change; no collector may be running on it, unless it lies in PostgreSQL.  "
        "[default: runs.duckdb]",
    )(with_store)
    return with_store  # type: ignore[return-value]
