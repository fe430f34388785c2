"""Transactions of a lake that others write too: optimistic, so that the later of two in each other's way fails."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import duckdb

Result = TypeVar("Result")

_ATTEMPTS = 30
# A takeover and a commit take some ten milliseconds each.
_LONGEST_PAUSE_SECONDS = 0.1


# DuckLake's words, and PostgreSQL's where two of DuckLake's own statements meet: of the one that came second, or of
# the one behind that, where DuckLake passes over the first. PostgreSQL takes nothing more in a transaction after
# either.
_CONFLICTS = ("Transaction conflict", "could not serialize access", "current transaction is aborted")


def is_conflict(error: Exception) -> bool:
    """Return whether another transaction came first: nothing was written, and the same may be tried again at once."""
    return isinstance(error, duckdb.Error) and any(words in str(error) for words in _CONFLICTS)


@contextmanager
def transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Commit at the end of the block; whatever fails leaves the store as it was, but for a commit whose answer is lost.

    Raises:
        duckdb.Error: the store failed.
    """
    connection.begin()
    try:
        yield
        connection.commit()
    except BaseException:
        with suppress(duckdb.Error):  # a commit that failed has ended its transaction
            connection.rollback()
        raise


def until_first(action: Callable[[], Result]) -> Result:
    """Call `action`, which is to make transactions, and call it again while others come first.

    Raises:
        duckdb.Error: the store failed, or others have come first for seconds.
    """
    for _ in range(_ATTEMPTS):
        try:
            return action()
        except duckdb.Error as error:
            if not is_conflict(error):
                raise
        time.sleep(random.uniform(0, _LONGEST_PAUSE_SECONDS))  # noqa: S311 - nothing depends on its being unforeseeable
    return action()
