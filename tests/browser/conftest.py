import shutil
from collections.abc import Iterator

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests.browser.browsing import Browser

PROGRAMS = ("chromium", "chromedriver")

# Without the sandbox, because CI may run as root; nothing but our own pages is opened.
_ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have every test that takes the browser skipped, or failed in CI, where there is none."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.needs(*PROGRAMS))


@pytest.fixture(scope="session")
def _chromium() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in _ARGUMENTS:
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    yield driver
    driver.quit()


@pytest.fixture
def browser(_chromium: webdriver.Chrome) -> Browser:
    """A browser with a wide window, light colours, no login, and an empty console."""
    browser = Browser(_chromium)
    browser.open("about:blank")
    browser.log_in(None)
    browser.resize(1280, 800)
    browser.prefer("light")
    browser.complaints()
    return browser
