"""Turns of statements: what they may take at once fits into memory, and no holder keeps others from it."""

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

import pytest

from gpuagent_collector.query.execute import BATCH_ROWS, Execution, Limits, QueryCancelledError, QueryTimeoutError
from gpuagent_collector.server.query_service import Turns
from gpuagent_collector.store import Store
from gpuagent_common.errors import MisuseError
from tests.support.servers import until

# With one thread and two copies, four statements of this many bytes a row fit into MEMORY_BYTES.
ROW_BYTES = 1000
MEMORY_BYTES = 4 * ROW_BYTES * BATCH_ROWS * 2


@pytest.fixture
def turns() -> Turns:
    return Turns(memory_bytes=MEMORY_BYTES)


def execution(store: Store, seconds: float | None = None) -> Execution:
    return Execution(store.connect, Limits(timeout_seconds=seconds))


def test_what_never_fits_is_refused_and_what_is_small_never_waits(store: Store, turns: Turns) -> None:
    with pytest.raises(MisuseError, match="MiB"):
        turns.wait(execution(store), "a", 4 * ROW_BYTES + 1)
    turns.wait(execution(store), "a", 4 * ROW_BYTES)
    turns.wait(execution(store), "a", ROW_BYTES // 4)


def test_more_threads_take_more(store: Store) -> None:
    with pytest.raises(MisuseError):
        Turns(memory_bytes=MEMORY_BYTES, threads=2).wait(execution(store), "a", 3 * ROW_BYTES)


def test_who_waits_obeys_its_limit_and_its_caller(store: Store, turns: Turns) -> None:
    turns.wait(execution(store), "a", 4 * ROW_BYTES)
    with pytest.raises(QueryTimeoutError):
        turns.wait(execution(store, 0.01), "a", ROW_BYTES)
    with closing(execution(store)) as cancelled, pytest.raises(QueryCancelledError):
        cancelled.cancel()
        turns.wait(cancelled, "a", ROW_BYTES)


def test_of_several_holders_the_one_with_least_comes_first(store: Store, turns: Turns) -> None:
    first, second, third, fourth = (execution(store) for _ in range(4))
    turns.wait(first, "greedy", 2 * ROW_BYTES)
    turns.wait(second, "greedy", 2 * ROW_BYTES)
    order: list[str] = []

    def wait(turn: Execution, holder: str) -> None:
        turns.wait(turn, holder, 2 * ROW_BYTES)
        order.append(holder)

    with ThreadPoolExecutor(2) as threads:
        waiting: list[Future[None]] = [threads.submit(wait, third, "greedy")]
        until(lambda: third in turns._waiting, "the first that waits")
        waiting.append(threads.submit(wait, fourth, "modest"))
        until(lambda: fourth in turns._waiting, "the other")
        turns.end(first)
        waiting[1].result()
        assert order == ["modest"]
        turns.end(second)
        waiting[0].result()
    assert order == ["modest", "greedy"]


def test_a_holder_with_many_that_wait_has_one_turn_before_the_others(store: Store, turns: Turns) -> None:
    running, second, third, other = (execution(store, 60.0) for _ in range(4))
    turns.wait(running, "greedy", None)
    with ThreadPoolExecutor(3) as threads:
        waiting = []
        for each, holder in ((second, "greedy"), (third, "greedy"), (other, "modest")):
            waiting.append(threads.submit(turns.wait, each, holder, None))
            until(lambda each=each: each in turns._waiting, "the one that waits")  # type: ignore[misc]
        turns.end(running)
        waiting[2].result()
        assert turns.largest() is other
        for each, turn in zip((other, second), waiting, strict=False):
            turns.end(each)
            turn.result()


def test_the_largest_is_known_while_it_runs_and_small_ones_are_not_counted(store: Store, turns: Turns) -> None:
    small, large, larger = (execution(store) for _ in range(3))
    turns.wait(small, "a", ROW_BYTES // 4)
    assert turns.largest() is None
    turns.wait(large, "a", ROW_BYTES)
    turns.wait(larger, "b", 2 * ROW_BYTES)
    assert turns.largest() is larger
    turns.end(larger)
    assert turns.largest() is large
    assert (turns.is_large(large), turns.is_large(larger), turns.is_large(small)) == (True, False, False)
