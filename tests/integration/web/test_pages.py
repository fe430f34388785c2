"""The page of nodes and runs, and the probes."""

import threading

import pytest

from gpuagent_collector.query.execute import Limits
from gpuagent_collector.store import Store
from gpuagent_collector.web.asker import Asker
from gpuagent_collector.web.cached import Cached
from gpuagent_collector.web.site import Sources, pages
from gpuagent_common.address import Address
from tests.support.http import fetch, served


def test_the_page_shows_nodes_gpus_and_runs(site: Address) -> None:
    answer = fetch(site, "/")
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "script" not in answer.headers["Content-Security-Policy"]
    for words in (
        "3 nodes",
        "1 silent",
        "Nodes (3)",
        "GPUs (2)",
        "Runs (2)",
        "98 %",
        "heat",
        "mnist-open",
        "110/150 GB",
    ):
        assert words in answer.text


def test_hostile_names_are_text_wherever_they_stand(site: Address) -> None:
    for path in ("/", "/?filter=%3Cscript%3E%22", "/?sort=%3Cscript%3E%22&order=reversed"):
        text = fetch(site, path).text
        assert "<script" not in text
        assert not set(text) & set("\x1b\x9b\u202e")
    assert "evil\\x1b[31m" in fetch(site, "/").text


def test_a_filter_and_an_order_are_in_the_address(site: Address) -> None:
    filtered = fetch(site, "/?filter=alder").text
    assert "Nodes (1)" in filtered
    assert "birch" not in filtered
    ordered = fetch(site, "/?sort=CPU&order=reversed").text
    assert ordered.index("alder") < ordered.index("evil")
    assert 'aria-sort="ascending"' in ordered


def test_the_page_is_loaded_again_only_where_that_was_asked_for(site: Address) -> None:
    assert "http-equiv" not in fetch(site, "/").text
    assert '<meta http-equiv="refresh" content="7">' in fetch(site, "/?refresh=7").text


@pytest.mark.parametrize("seconds", ["0", "-1", "x", "99999", "9" * 5000, "1;url=https://example.org"])
def test_a_refresh_that_makes_no_sense_is_refused(site: Address, seconds: str) -> None:
    assert fetch(site, f"/?refresh={seconds}").status == 400


def test_probes_answer_everybody(store: Store) -> None:
    ready = [True]
    sources = Sources(ask=Asker(store.connect, Limits()), store="", instruments=(), is_ready=lambda: ready[0])
    with served(pages(sources)) as server:
        assert fetch(server.address, "/healthz", {}).status == 200
        assert fetch(server.address, "/readyz", {}).status == 200
        ready[0] = False
        assert fetch(server.address, "/healthz", {}).status == 200
        assert fetch(server.address, "/readyz", {}).status == 503


def test_an_answer_is_kept_for_its_time_and_no_longer() -> None:
    clock, made = [0.0], iter(range(10))
    cached = Cached(lambda: next(made), keep_seconds=1.0, monotonic=lambda: clock[0])
    assert [cached.get(), cached.get()] == [0, 0]
    clock[0] = 1.0
    assert cached.get() == 1


def test_a_failure_is_not_kept() -> None:
    failing = [True]

    def make() -> int:
        if failing.pop():
            failing.append(False)
            raise ValueError
        return 7

    cached = Cached(make, keep_seconds=1e9)
    with pytest.raises(ValueError):
        cached.get()
    assert cached.get() == 7


def test_those_who_come_while_it_is_made_share_one_answer() -> None:
    made: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def make() -> int:
        begun.set()
        go_on.wait(60)
        made.append(1)
        return len(made)

    cached = Cached(make, keep_seconds=1e9)
    answers: list[int] = []
    threads = [threading.Thread(target=lambda: answers.append(cached.get())) for _ in range(4)]
    for thread in threads:
        thread.start()
    begun.wait(60)
    go_on.set()
    for thread in threads:
        thread.join()
    assert answers == [1] * 4
