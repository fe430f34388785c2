from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By

from tests.browser.browsing import COLOURS, Browser
from tests.support.http import TOKEN, served_store
from tests.support.recent import fill
from tests.support.stores import open_store


@pytest.fixture
def overview(tmp_path: Path, browser: Browser) -> Iterator[str]:
    """The address of the page of a small store; the browser is logged in there."""
    with open_store(str(tmp_path / "runs.duckdb")) as store:
        fill(store)
        with served_store(store) as address:
            browser.log_in(TOKEN)
            yield f"http://{address}/"


def test_the_page_fits_any_width_and_colours_loads_nothing_and_runs_nothing(browser: Browser, overview: str) -> None:
    for width, colours in zip((400, 1280), COLOURS, strict=True):
        browser.resize(width, 800)
        browser.prefer(colours)
        browser.open(overview)
        assert "3 nodes · 1 silent · 2 GPUs · 1 held back · 1 run under way" in browser.text()
        assert browser.contrasts()[0][0] >= 4.5
        assert not browser.overflows()
    assert browser.requests() == []
    assert browser.complaints() == []
    assert browser.ask("return getComputedStyle(document.querySelector('td')).whiteSpace") == "nowrap"
    assert "<script>alert(1)</script>" in browser.text()
    assert browser.ask("return document.scripts.length") == 0


def test_filter_order_and_links_work_by_keyboard_and_mouse(browser: Browser, overview: str) -> None:
    browser.open(overview)
    pages = ["Overview", "Runs", "Jobs", "Idle GPUs", "Metrics"]
    assert [browser.press_tab() for _ in range(6)] == [*pages, "filter"]
    browser.driver.switch_to.active_element.send_keys("alder\n")
    browser.wait_for(f"{overview}?filter=alder")
    assert "Nodes (1)" in browser.text()
    browser.driver.find_element(By.LINK_TEXT, "CPU").click()
    browser.wait_for(f"{overview}?filter=alder&sort=CPU")
    assert browser.complaints() == []
    browser.open(overview)
    seen = [browser.press_tab() for _ in range(9)]
    assert seen[5:8] == ["filter", "Show", "refresh every 5 s"]
