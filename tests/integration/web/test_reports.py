"""`/report`: the page that `collector report` writes, by an address."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gpuagent_collector.query.execute import Limits, Parameter
from gpuagent_collector.store import Store
from gpuagent_collector.web.asker import Asker
from gpuagent_collector.web.reports import Reports
from gpuagent_collector.web.site import Sources, pages
from gpuagent_common.address import Address
from gpuagent_common.errors import GpuAgentError
from tests.integration.compare.synthetic import SyntheticStore, quiet_and_burning
from tests.support.http import fetch, served
from tests.support.pages import parse


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Address]:
    """Where the pages of a store with MNIST alone and beside a CPU load are served."""
    with Store.open(str(tmp_path / "runs.duckdb")) as store:
        synthetic = SyntheticStore(store.connect())
        quiet_and_burning(synthetic)
        synthetic.write()
        synthetic.connection.close()
        sources = Sources(
            ask=Asker(store.connect, Limits()), store="runs.duckdb", instruments=(), is_ready=lambda: True
        )
        with served(pages(sources)) as server:
            yield server.address


def test_a_report_is_what_the_address_asks_for(collector: Address) -> None:
    answer = fetch(collector, "/report?by=interference&sides=cpu-burn,none&delta=5&stat=max&workload=mnist&metric=")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    page = parse(answer.text)
    assert page.all("h1")[0].text == "mnist by interference: cpu-burn, none"
    command = "collector report report.html cpu-burn none --by interference --workload mnist --stat max --delta 5"
    assert command in page.by_id("reproduce").text


def test_its_policy_is_sent_as_well_as_written(collector: Address) -> None:
    answer = fetch(collector, "/report?by=interference")
    policy = next(
        meta.attributes["content"]
        for meta in parse(answer.text).all("meta")
        if meta.attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert answer.headers["Content-Security-Policy"] == f"{policy}; frame-ancestors 'none'"


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("by=platform", 404, "nothing to compare"),
        ("by=colour", 400, "--by colour is unknown"),
        ("by=interference&delta=x", 400, "delta is a number"),
        ("by=interference&delta=-1", 400, "delta is a number"),
        ("by=interference&delta=nan", 400, "delta is a number"),
        ("by=interference&stat=mode", 400, "stat is one of"),
        ("by=interference&where=1%3D1", 400, "nothing named where"),
        ("by=interference&%3Cscript%3E=1", 400, "nothing named <script>"),
    ],
)
def test_what_makes_no_sense_is_said_as_text(collector: Address, query: str, status: int, said: str) -> None:
    answer = fetch(collector, f"/report?{query}")
    assert (answer.status, answer.headers["Content-Type"]) == (status, "text/plain; charset=utf-8")
    assert said in answer.text


def test_nobody_gets_a_report_without_the_token(collector: Address) -> None:
    assert fetch(collector, "/report?by=interference", headers={}).status == 401


def test_the_page_of_nodes_asks_for_reports(collector: Address) -> None:
    assert '<form action="/report">' in fetch(collector, "/").text


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
        with pytest.raises(GpuAgentError, match="another report is being made"):
            reports.answer({})
        go_on.set()
        assert "no runs" in str(first.exception())
    with pytest.raises(GpuAgentError, match="no runs"):
        reports.answer({})
