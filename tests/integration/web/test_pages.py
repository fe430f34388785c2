import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb
import pytest

from gpuagent_collector.query.execute import Limits, Parameter
from gpuagent_collector.store import Store
from gpuagent_collector.web.asker import Asker
from gpuagent_collector.web.runs import Reports
from gpuagent_collector.web.site import Cached
from gpuagent_common.address import Address
from gpuagent_common.errors import GpuAgentError
from tests.integration.compare.synthetic import quiet_and_burning
from tests.support.commands import adding_to
from tests.support.http import PATIENCE_SECONDS, fetch, served_store
from tests.support.pages import parse
from tests.support.stores import open_store


def test_the_page_shows_nodes_gpus_and_runs_and_is_loaded_again_only_on_request(site: Address) -> None:
    answer = fetch(site, "/")
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "script" not in answer.headers["Content-Security-Policy"]
    shown = ("3 nodes", "1 silent", "Nodes (3)", "GPUs (2)", "Runs (2)", "98 %", "heat", "110/150 GB")
    for words in (*shown, '<a href="/runs/mnist-open">mnist-open</a>'):
        assert words in answer.text
    assert "http-equiv" not in answer.text
    assert '<meta http-equiv="refresh" content="7">' in fetch(site, "/?refresh=7").text
    for seconds in ("0", "-1", "x", "99999", "9" * 5000, "1;url=https://example.org"):
        assert fetch(site, f"/?refresh={seconds}").status == 400


def test_hostile_names_are_text_wherever_they_stand(site: Address) -> None:
    for path in ("/", "/?filter=%3Cscript%3E%22", "/?sort=%3Cscript%3E%22&order=reversed"):
        text = fetch(site, path).text
        assert "<script" not in text
        assert not set(text) & set("\x1b\x9b\u202e")
    assert "evil\\x1b[31m" in fetch(site, "/").text


def links(page: str) -> list[str]:
    return [each.attributes.get("href", "") for each in parse(page).all("a")]


def test_all_runs_are_listed_by_pages_that_lead_to_others(site: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuagent_collector.web.runs._ROWS", 1)
    newest = fetch(site, "/runs").text
    (older,) = [address for address in links(newest) if address.startswith("/runs?")]
    (run,) = [address for address in links(newest) if address.startswith("/runs/")]
    rest = fetch(site, older).text
    assert run not in links(rest)
    assert '<a href="/runs?page=1">' in rest
    assert "/runs/mnist-open" in {run, *links(rest)}
    assert "no such runs" in fetch(site, "/runs?workload=none").text
    assert {fetch(site, f"/runs?{field}").status for field in ("page=0", "nothing=1")} == {400}
    assert {"/", "/runs"} <= set(links(fetch(site, run).text))
    assert "/runs" in links(fetch(site, "/").text)


def test_a_filter_and_an_order_are_in_the_address(site: Address) -> None:
    filtered = fetch(site, "/?filter=alder").text
    assert "Nodes (1)" in filtered
    assert "birch" not in filtered
    ordered = fetch(site, "/?sort=CPU&order=reversed").text
    assert ordered.index("alder") < ordered.index("evil")
    assert 'aria-sort="ascending"' in ordered


def test_the_page_says_why_nothing_is_stored(store: Store) -> None:
    with served_store(store, trouble=lambda: "nothing is stored: the disk is full") as address:
        assert "nothing is stored:" in fetch(address, "/").text
    with served_store(store) as address:
        assert "nothing is stored" not in fetch(address, "/").text


def test_probes_answer_everybody(store: Store) -> None:
    ready = [True]
    with served_store(store, lambda: ready[0]) as address:
        assert [fetch(address, path, {}).status for path in ("/healthz", "/readyz")] == [200, 200]
        ready[0] = False
        assert [fetch(address, path, {}).status for path in ("/healthz", "/readyz")] == [200, 503]


def test_an_answer_is_kept_for_its_time_and_a_failure_is_not() -> None:
    clock, made = [0.0], iter([[], [7], [8]])
    cached = Cached(lambda: next(made).pop(), keep_seconds=1.0, monotonic=lambda: clock[0])
    with pytest.raises(IndexError):
        cached.get()
    assert [cached.get(), cached.get()] == [7, 7]
    clock[0] = 1.0
    assert cached.get() == 8


def test_those_who_come_while_it_is_made_share_one_answer() -> None:
    made: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def make() -> int:
        begun.set()
        go_on.wait(PATIENCE_SECONDS)
        made.append(1)
        return len(made)

    cached = Cached(make, keep_seconds=1e9)
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(cached.get) for _ in range(4)]
        begun.wait(PATIENCE_SECONDS)
        go_on.set()
    assert [answer.result() for answer in answers] == [1] * 4


ENDLESS = "SELECT count(*) FROM range(10_000_000_000) WHERE hash(range) = 7"


def test_answers_are_whole_rows_and_nothing_can_be_written(store: Store) -> None:
    ask = Asker(store.connect, Limits(rows=10))
    assert ask("SELECT hostname FROM sessions WHERE hostname = ?", ["alder"]) == [{"hostname": "alder"}]
    assert len(ask("SELECT 1 FROM range(10)")) == 10
    assert "larger than the" in failure(lambda: ask("SELECT 1 FROM range(11)"))
    assert "read-only" in failure(lambda: ask("DELETE FROM sessions"))


def test_closing_stops_a_question_under_way(store: Store) -> None:
    begun = threading.Event()

    def connect() -> duckdb.DuckDBPyConnection:
        begun.set()
        return store.connect()

    asker = Asker(connect, Limits())
    with ThreadPoolExecutor(1) as pool:
        refused = pool.submit(failure, lambda: asker(ENDLESS))
        begun.wait(PATIENCE_SECONDS)
        asker.close()
    assert "query was cancelled" in refused.result()
    # A page that asks on is refused, too.
    assert "query was cancelled" in failure(lambda: asker("SELECT 1"))


def failure(call: Callable[[], object]) -> str:
    with pytest.raises(GpuAgentError) as raised:
        call()
    return str(raised.value)


@pytest.fixture
def reporting(tmp_path: Path) -> Iterator[Address]:
    """Where the pages of a store with MNIST alone and beside a CPU load are served."""
    with open_store(str(tmp_path / "runs.duckdb")) as store:
        with adding_to(store) as synthetic:
            quiet_and_burning(synthetic)
        with served_store(store) as address:
            yield address


def test_a_report_is_what_the_address_asks_for_under_its_policy_and_for_the_token(reporting: Address) -> None:
    answer = fetch(reporting, "/report?by=interference&sides=cpu-burn,none&delta=5&stat=max&workload=mnist&metric=")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    page = parse(answer.text)
    assert "interference: cpu-burn, none" in page.all("h1")[0].text
    command = "collector report -o report.html --by interference --workload mnist --stat max --delta 5 cpu-burn none"
    assert command in page.by_id("reproduce").text
    policy = next(
        meta.attributes["content"]
        for meta in page.all("meta")
        if meta.attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert answer.headers["Content-Security-Policy"] == f"{policy}; frame-ancestors 'none'"
    assert fetch(reporting, "/report?by=interference", headers={}).status == 401
    assert '<form action="/report">' in fetch(reporting, "/").text


def test_a_run_has_a_page_that_the_overview_links_to(reporting: Address) -> None:
    answer = fetch(reporting, "/runs/cpu-burn-2")
    assert answer.status == 200
    page = parse(answer.text)
    assert page.all("h1")[0].text == "Run cpu-burn-2: mnist on laptop"
    assert "succeeded" in page.by_id("run").text
    assert "GPU" not in page.by_id("answer").text
    assert "collector report -o report.html --by run cpu-burn-2" in page.by_id("reproduce").text
    assert fetch(reporting, "/runs/cpu-burn-2?each=node").status == 200
    assert fetch(reporting, "/runs/cpu-burn-2", headers={}).status == 401


def test_runs_with_any_name_have_pages_and_others_do_not(tmp_path: Path) -> None:
    name = "a/b?c#d<script>%"
    with open_store(str(tmp_path / "runs.duckdb")) as store:
        with adding_to(store) as synthetic:
            synthetic.run(name, synthetic.node("spruce", "laptop"), start_seconds=0)
        with served_store(store) as address:
            run = f"/runs/{quote(name, safe='')}"
            answer = fetch(address, run)
            assert (answer.status, "<script>%" in answer.text) == (200, False)
            for path in ("/runs/nothing", "/runs/", "/other/page", "/jobs/nothing"):
                assert fetch(address, path).status == 404, path
            for path in ("/jobs/nothing?where=1", f"{run}?each=core", f"{run}?where=1"):
                assert fetch(address, path).status == 400, path


def test_a_node_has_a_page_with_curves_hardware_and_runs_that_tables_link_to(site: Address) -> None:
    overview = parse(fetch(site, "/").text)
    links = {each.text: each.attributes["href"] for each in overview.all("a") if "/nodes/" in each.attributes["href"]}
    assert len(links) == 3
    address = next(address for name, address in links.items() if name == "alder")
    answer = fetch(site, f"{address}?refresh=7")
    page = parse(answer.text)
    assert answer.status == 200
    assert page.all("h1")[0].text == "Node alder"
    curves = {each.attributes["aria-label"].partition(":")[0]: each for each in page.all("svg")}
    assert {"Node CPU", "GPU utilisation"} <= curves.keys()
    assert "0: 98 %, 1: 0 %" in curves["GPU utilisation"].attributes["aria-label"]
    assert len(page.all("polyline")) >= len(curves)
    assert "GPU-alder-1" in answer.text and "64 threads" in answer.text
    assert '<a href="/runs/mnist-open">' in answer.text
    assert '<meta http-equiv="refresh" content="7">' in answer.text
    assert "script" not in answer.headers["Content-Security-Policy"]
    for query in ("minutes=0", "minutes=x", "minutes=1441", "refresh=0", "where=1"):
        assert fetch(site, f"{address}?{query}").status == 400, query
    for path in ("/nodes/nothing", "/nodes/", "/nodes"):
        assert fetch(site, path).status == 404, path
    assert fetch(site, address, {}).status == 401
    for silent_or_evil in links.values():
        text = fetch(site, f"{silent_or_evil}?minutes=1440").text
        assert "<script" not in text
        assert not set(text) & set("\x1b\x9b\u202e")


REFUSALS = [
    ("by=label%3Arack", 404, "nothing to compare"),
    ("by=colour", 400, "--by colour is unknown"),
    ("by=interference&delta=x", 400, "delta is a number"),
    ("by=interference&delta=-1", 400, "delta is a number"),
    ("by=interference&delta=nan", 400, "delta is a number"),
    ("by=interference&stat=mode", 400, "stat is one of"),
    ("by=interference&where=1%3D1", 400, "nothing named where"),
    ("by=interference&%3Cscript%3E=1", 400, "nothing named <script>"),
]


def test_what_makes_no_sense_is_refused_as_text(reporting: Address) -> None:
    for query, status, words in REFUSALS:
        answer = fetch(reporting, f"/report?{query}")
        assert (answer.status, answer.headers["Content-Type"]) == (status, "text/plain; charset=utf-8"), query
        assert words in answer.text


def test_while_one_report_is_made_another_is_refused() -> None:
    asked, go_on = threading.Event(), threading.Event()

    def ask(sql: str, parameters: Sequence[Parameter] = ()) -> list[dict[str, Any]]:
        asked.set()
        go_on.wait()
        return []

    reports = Reports(ask, source="nowhere")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(reports.answer, {})
        asked.wait()
        with pytest.raises(GpuAgentError, match="another report is"):
            reports.answer({})
        go_on.set()
        assert "no runs" in str(first.exception())
    with pytest.raises(GpuAgentError, match="no runs"):
        reports.answer({})
