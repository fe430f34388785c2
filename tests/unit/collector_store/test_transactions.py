import duckdb
import pytest

from gpuagent_collector.store.transactions import is_conflict, retry_conflicts


@pytest.mark.parametrize(
    "message",
    [
        "TransactionContext Error: Failed to commit: Transaction conflict on table steps",
        "could not serialize access due to concurrent update",
        "ERROR:  current transaction is aborted, commands ignored until end of transaction block",
        "TransactionContext Error: Current transaction is aborted (please ROLLBACK)",
    ],
)
def test_a_conflict_is_retried_however_it_is_spelled(message: str) -> None:
    failures = iter([duckdb.TransactionException(message)])

    def attempt() -> str:
        if error := next(failures, None):
            raise error
        return "done"

    assert is_conflict(duckdb.TransactionException(message))
    assert retry_conflicts(attempt) == "done"


def test_a_failure_that_is_no_conflict_is_not_retried() -> None:
    def fail() -> None:
        raise duckdb.IOException("No space left on device")

    with pytest.raises(duckdb.IOException, match="No space left"):
        retry_conflicts(fail)
