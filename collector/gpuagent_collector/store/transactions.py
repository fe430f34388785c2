"""Transactions of a lake that others write too: optimistic, so that the later of two conflicting ones fails."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TypeVar

import duckdb

Result = TypeVar("Result")

_ATTEMPTS = 30
# A takeover and a commit take some ten milliseconds each.
_LONGEST_PAUSE_SECONDS = 0.1

# The first is DuckLake's message. The others are PostgreSQL's where two of DuckLake's own statements conflict: of the
# later statement, or of the one after it where DuckLake ignores the first. PostgreSQL then accepts nothing more in the
# transaction.
_CONFLICTS = ("Transaction conflict", "could not serialize access", "current transaction is aborted")


def is_conflict(error: Exception) -> bool:
    """Return whether another transaction came first: nothing was written, and an immediate retry is right."""
    return isinstance(error, duckdb.Error) and any(words in str(error) for words in _CONFLICTS)


@contextmanager
def transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Commit on exit; a failure leaves the store unchanged, except where the answer of a commit is lost.

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


def backoff_delays(first_seconds: float, longest_seconds: float) -> Iterator[float]:
    """Yield pauses between retries without end; each is twice the one before, up to the longest."""
    delay_seconds = first_seconds
    while True:
        yield delay_seconds
        delay_seconds = min(2 * delay_seconds, longest_seconds)


def retry_conflicts(action: Callable[[], Result]) -> Result:
    """Call `action`, which makes transactions, and repeat it while other transactions come first.

    Raises:
        duckdb.Error: the store failed, or conflicts have gone on for seconds.
    """
    for delay_seconds in islice(backoff_delays(_LONGEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS), _ATTEMPTS):
        try:
            return action()
        except duckdb.Error as error:
            if not is_conflict(error):
                raise
        time.sleep(random.uniform(0, delay_seconds))  # noqa: S311 - no secret depends on it
    return action()
