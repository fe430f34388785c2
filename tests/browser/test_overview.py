"""The page of nodes and runs in a real browser."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from selenium.webdriver.common.by import By

from gpuagent_collector.query.execute import Limits
from gpuagent_collector.store import Store
from gpuagent_collector.web.asker import Asker
from gpuagent_collector.web.site import Sources, pages
from tests.browser.browsing import Browser
from tests.support.http import TOKEN, served
from tests.support.recent import fill


@pytest.fixture
def overview(tmp_path: Path, browser: Browser) -> Iterator[str]:
    """The address of the page of a small store; the browser is logged in there."""
    with Store.open(str(tmp_path / "runs.duckdb")) as store:
        fill(store)
        sources = Sources(
            ask=Asker(store.connect, Limits()), store="runs.duckdb", instruments=(), is_ready=lambda: True
        )
        with served(pages(sources)) as server:
            browser.log_in(TOKEN)
            yield f"http://{server.address}/"


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_the_page_can_be_read_in_any_width_and_colours(
    browser: Browser, overview: str, width: int, colours: Literal["light", "dark"]
) -> None:
    browser.resize(width, 800)
    browser.prefer(colours)
    browser.open(overview)
    assert "3 nodes · 1 silent · 2 GPUs · 1 held back · 1 run under way" in browser.text()
    assert browser.contrasts()[0][0] >= 4.5
    assert not browser.overflows()


def test_the_page_needs_nothing_else_and_the_browser_finds_nothing_wrong(browser: Browser, overview: str) -> None:
    browser.open(overview)
    assert browser.requests() == []
    assert browser.complaints() == []
    assert browser.ask("return getComputedStyle(document.querySelector('td')).whiteSpace") == "nowrap"


def test_hostile_names_run_nothing(browser: Browser, overview: str) -> None:
    browser.open(overview)
    assert "<script>alert(1)</script>" in browser.text()
    assert browser.ask("return document.scripts.length") == 0


def test_filter_and_order_work_by_keyboard_and_mouse(browser: Browser, overview: str) -> None:
    browser.open(overview)
    assert browser.press_tab() == "filter"
    browser.driver.switch_to.active_element.send_keys("alder\n")
    assert browser.driver.current_url == f"{overview}?filter=alder"
    assert "Nodes (1)" in browser.text()
    browser.driver.find_element(By.LINK_TEXT, "CPU").click()
    assert browser.driver.current_url == f"{overview}?filter=alder&sort=CPU"
    assert browser.complaints() == []


def test_the_focus_passes_every_link(browser: Browser, overview: str) -> None:
    browser.open(overview)
    seen = [browser.press_tab() for _ in range(5)]
    assert seen[:4] == ["filter", "Show", "refresh every 5 s", "metrics"]
