"""The page of one run: it can be read in any width and colours, loads nothing, and draws a line for each GPU."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By

from tests.browser.browsing import COLOURS, Browser
from tests.support.commands import adding_to
from tests.support.http import TOKEN, served_store
from tests.support.stores import open_store

pytestmark = pytest.mark.slow


@pytest.fixture
def address(tmp_path: Path, browser: Browser) -> Iterator[str]:
    """The address of the pages of a store with a run on two GPUs; the browser is logged in there."""
    with open_store(str(tmp_path / "runs.duckdb")) as store:
        with adding_to(store) as synthetic:
            synthetic.run("mnist-1", synthetic.node("spruce", "lab", gpus=["NVIDIA H200"] * 2), start_seconds=0)
        with served_store(store) as served:
            browser.log_in(TOKEN)
            yield f"http://{served}"


def test_the_page_of_a_run_can_be_read_and_has_a_line_for_each_gpu(browser: Browser, address: str) -> None:
    for width, colours in zip((360, 1600), COLOURS, strict=True):
        browser.resize(width, 800)
        browser.prefer(colours)
        browser.open(f"{address}/runs/mnist-1?each=gpu")
        assert browser.contrasts()[0][0] >= 4.5
        assert not browser.overflows()
    assert "Run mnist-1: mnist on lab" in browser.text()
    legend = browser.driver.find_element(By.CLASS_NAME, "legend").text
    assert "mnist-1 GPU 0" in legend
    assert "mnist-1 GPU 1" in legend
    assert browser.requests() == []
    assert browser.complaints() == []
