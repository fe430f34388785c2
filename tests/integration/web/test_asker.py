"""Questions of the pages to the store."""

import threading
from collections.abc import Callable

import duckdb
import pytest

from gpuagent_collector.query.execute import Limits
from gpuagent_collector.store import Store
from gpuagent_collector.web.asker import Asker
from gpuagent_common.errors import GpuAgentError

ENDLESS = "SELECT count(*) FROM range(10_000_000_000) WHERE hash(range) = 7"


def test_answers_are_rows(store: Store) -> None:
    ask = Asker(store.connect, Limits())
    assert ask("SELECT hostname FROM sessions WHERE hostname = ?", ["alder"]) == [{"hostname": "alder"}]


def test_nothing_can_be_written(store: Store) -> None:
    with pytest.raises(GpuAgentError, match="read-only"):
        Asker(store.connect, Limits())("DELETE FROM sessions")


def test_closing_stops_a_question_under_way(store: Store) -> None:
    begun = threading.Event()
    failures: list[str] = []

    def connect() -> duckdb.DuckDBPyConnection:
        begun.set()
        return store.connect()

    asker = Asker(connect, Limits())
    thread = threading.Thread(target=lambda: failures.append(failure(lambda: asker(ENDLESS))))
    thread.start()
    begun.wait(60)
    asker.close()
    thread.join()
    assert failures == ["the query was cancelled"]


def test_a_page_that_asks_on_after_closing_is_refused(store: Store) -> None:
    asker = Asker(store.connect, Limits())
    asker.close()
    assert failure(lambda: asker("SELECT 1")) == "the query was cancelled"


def test_an_answer_that_would_be_cut_short_is_refused(store: Store) -> None:
    asker = Asker(store.connect, Limits(rows=10))
    assert len(asker("SELECT 1 FROM range(10)")) == 10
    assert failure(lambda: asker("SELECT 1 FROM range(11)")) == "the answer is larger than the collector gives"


def failure(call: Callable[[], object]) -> str:
    with pytest.raises(GpuAgentError) as raised:
        call()
    return str(raised.value)
