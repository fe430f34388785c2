"""Transactions of a lake that others write too: optimistic, so that the later of two conflicting ones fails."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import duckdb

from gpuagent_common.backoff import Backoff

Result = TypeVar("Result")

_ATTEMPTS = 30
# A takeover and a commit take some ten milliseconds each.
_LONGEST_PAUSE_SECONDS = 0.1

# The first is DuckLake's message. The second is PostgreSQL's where two of DuckLake's own statements conflict. The third
# is of the statement after that, where DuckLake ignores the first: PostgreSQL and DuckDB then accept nothing more in
# the transaction, and spell this differently.
_CONFLICTS = ("transaction conflict", "could not serialize access", "current transaction is aborted")


def is_conflict(error: Exception) -> bool:
    """Return whether another transaction came first: nothing was written, and an immediate retry is right."""
    return isinstance(error, duckdb.Error) and any(words in str(error).lower() for words in _CONFLICTS)


@contextmanager
def transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Commit on exit; a failure leaves the store unchanged, except where the answer of a commit is lost.

    Raises duckdb.Error: the store failed.
    """
    connection.begin()
    try:
        yield
        connection.commit()
    except BaseException:
        with suppress(duckdb.Error):  # a commit that failed has ended its transaction
            connection.rollback()
        raise


def retry_conflicts(action: Callable[[], Result]) -> Result:
    """Call `action`, which makes transactions, and repeat it while other transactions come first.

    Raises duckdb.Error: the store failed, or conflicts have gone on for seconds.
    """
    pause = Backoff(first_seconds=_LONGEST_PAUSE_SECONDS, longest_seconds=_LONGEST_PAUSE_SECONDS, jitter=1.0)
    while True:
        try:
            return action()
        except duckdb.Error as error:
            if not is_conflict(error) or pause.failures == _ATTEMPTS:
                raise
        time.sleep(pause.next_delay_seconds())
