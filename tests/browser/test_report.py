"""A report in a real browser: nothing is loaded, everything is drawn, and it can be read, steered and printed."""

import base64
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from gpuagent_collector.compare.comparison import Request
from gpuagent_collector.prices.files import parse_prices
from gpuagent_collector.report.page import library_name, plotly_script, render
from gpuagent_collector.report.study import make_report
from tests.browser.browsing import COLOURS, Browser
from tests.integration.compare.synthetic import SyntheticStore
from tests.integration.report.scenes import PRICES, everything
from tests.support.commands import synthetic
from tests.support.recent import HOSTILE
from tests.support.servers import until

pytestmark = pytest.mark.slow

# The worst contrast of all texts that plotly has drawn to the page.
_TEXTS_IN_CHARTS = """
const channel = c => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
const luminance = text => { const [r, g, b] = text.match(/[\\d.]+/g).map(Number);
  return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b); };
const back = luminance(getComputedStyle(document.body).backgroundColor);
return Math.min(...[...document.querySelectorAll(".main-svg text")].filter(text => text.textContent).map(text => {
  const fill = luminance(getComputedStyle(text).fill);
  return (Math.max(fill, back) + 0.05) / (Math.min(fill, back) + 0.05);
}));
"""

_UNDRAWN = """
return [...document.querySelectorAll(".chart")]
  .filter(place => !place.closest("details:not([open])"))
  .filter(place => !place.querySelector(".barlayer path[d], .scatterlayer path[d]"))
  .map(place => place.getAttribute("aria-label"));
"""


def write_report(folder: Path, fill: Callable[[SyntheticStore], None], request: Request, source: str = "x") -> Path:
    with synthetic(folder / "runs.duckdb", fill) as store:
        now = datetime(2030, 1, 2)  # noqa: DTZ001 - as the store holds times
        report = make_report(store.ask, request, source=source, now=now)
    (folder / library_name()).write_text(plotly_script())
    (folder / "report.html").write_text(render(report, library=library_name()))
    return folder / "report.html"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    request = Request(prices=parse_prices(PRICES.encode(), "prices.yaml"))
    return write_report(tmp_path_factory.mktemp("report"), everything, request)


def test_a_report_without_its_library_says_so(browser: Browser, page: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone.html"
    alone.write_bytes(page.read_bytes())
    assert len(page.read_bytes()) < 1_000_000
    browser.open(alone.as_uri())
    note = browser.driver.find_element(By.ID, "without-library")
    assert note.is_displayed() and library_name() in note.text


def test_the_report_can_be_read_in_any_width_and_colours_and_draws_every_chart(browser: Browser, page: Path) -> None:
    for width, colours in zip((360, 1600), COLOURS, strict=True):
        browser.resize(width, 800)
        browser.prefer(colours)
        browser.open(page)
        assert browser.contrasts()[0][0] >= 4.5
        assert browser.ask(_TEXTS_IN_CHARTS) >= 4.5
        assert not browser.overflows()
    assert len(browser.driver.find_elements(By.CLASS_NAME, "chart")) >= 15
    assert browser.ask(_UNDRAWN) == []
    # A link of the table of contents opens a folded workload, whose charts are then drawn.
    browser.ask('location.hash = "over-time-1"')
    opened = 'return document.querySelectorAll("#over-time-1[open] .chart .main-svg").length'
    assert until(lambda: browser.ask(opened) > 10, "its charts")
    assert until(lambda: browser.ask(_UNDRAWN) == [], "all its charts")
    assert browser.requests() == []
    assert browser.complaints() == []


def test_the_charts_follow_the_colours_that_are_preferred(browser: Browser, page: Path) -> None:
    browser.open(page)
    line = 'return getComputedStyle(document.querySelector(".scatterlayer .js-line")).stroke'
    light = browser.ask(line)
    browser.prefer("dark")
    assert until(lambda: browser.ask(line) != light, "another colour")
    assert browser.ask(_TEXTS_IN_CHARTS) >= 4.5


def test_keyboards_reach_everything_and_linked_charts_zoom_together(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert "Skip to the" in browser.press_tab()
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert browser.ask("return document.activeElement.id") == "main"
    browser.press_tab()
    assert browser.ask('return document.activeElement.getAttribute("aria-label")') == "Verdicts"
    for _ in range(60):
        if " more metrics of " in browser.press_tab():
            break
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert browser.ask("return document.activeElement.parentElement.open")
    # A zoom of one course zooms all.
    browser.ask('Plotly.relayout(document.querySelector(".charts .chart"), {"xaxis.range": [2, 4]})')
    drawn = '[...document.querySelectorAll(".chart.js-plotly-plot[data-linked]")]'
    ends = f"return {drawn}.map(p => p.layout.xaxis.range.join())"
    assert set(browser.ask(ends)) == {"2,4"}
    unlinked = 'return document.querySelector("#distributions .chart").layout.xaxis.range.join()'
    assert browser.ask(unlinked) != "2,4"


def test_it_prints_on_white_with_everything_unfolded_and_is_as_before_afterwards(browser: Browser, page: Path) -> None:
    browser.prefer("dark")
    browser.open(page)
    size = {"paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": True}
    printed = browser.driver.execute_cdp_cmd("Page.printToPDF", size)
    document = base64.b64decode(printed["data"])
    assert document.startswith(b"%PDF-")
    assert document.count(b"/Type /Page\n") >= 8
    assert browser.ask("return document.documentElement.className") == ""
    assert browser.ask('return document.querySelectorAll("details[open]").length') == 0
    assert browser.complaints() == []


def test_hostile_names_run_nothing(browser: Browser, tmp_path: Path) -> None:
    def fill(store: SyntheticStore) -> None:
        for place in ("a", "b"):
            node = store.node(HOSTILE, f"{place}{HOSTILE}", gpus=[HOSTILE])
            store.run(f"{place}{HOSTILE}", node, start_seconds=20.0 * ord(place), workload=HOSTILE)

    browser.open(write_report(tmp_path, fill, Request(), source=HOSTILE))
    assert "<script>alert(1)</script>" in browser.text()
    assert browser.ask(_UNDRAWN) == []
    assert browser.ask("return document.querySelectorAll('.main-svg a, img').length") == 0
    assert browser.complaints() == []
