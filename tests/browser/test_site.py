"""The documentation as a site: strict links, all pages near, and what people search for is found."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.browser.browsing import Browser
from tests.support.servers import until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

# What somebody types → a page that answers it, among the first five.
QUESTIONS = {
    "compare platforms": "comparing",
    "container overhead": "environments",
    "how many repeats": "statistics",
    "price per hour": "cost",
    "slurm job": "deploy/slurm",
    "openshift": "deploy/openshift",
    "roofline memory bound": "roofline",
    "ranks efficiency": "scaling",
    "ttft": "llm",
    "prometheus alerts": "monitoring",
}

_FOUND = "return [...document.querySelectorAll('.md-search-result__link')].map(each => each.pathname)"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is given
        """Log no requests."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with every warning an error."""
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_every_page_is_two_clicks_from_the_first(site: Path) -> None:
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")} - {"404.html"}
    assert len(pages) > 30

    def linked(page: str) -> set[str]:
        targets = re.findall(r'href="([^"#:]+\.html)', (site / page).read_text())
        return {((site / page).parent / target).resolve().relative_to(site.resolve()).as_posix() for target in targets}

    near = linked("index.html") | {"index.html"}
    assert pages <= near.union(*map(linked, near))


@pytest.mark.parametrize("width", [400, 1280])
def test_a_page_fits_and_loads_nothing_from_elsewhere(address: str, browser: Browser, width: int) -> None:
    browser.resize(width, 900)
    browser.open(f"{address}/comparing.html")
    assert not browser.overflows()
    loaded = browser.requests()
    assert loaded
    assert [name for name in loaded if not name.startswith(address)] == []


def test_questions_are_found(address: str, browser: Browser) -> None:
    for words, page in QUESTIONS.items():
        browser.open(f"{address}/index.html?q={words.replace(' ', '+')}")
        results = until(lambda: browser.ask(_FOUND), f"a result for {words}")
        pages = list(dict.fromkeys(results))
        assert f"/{page}.html" in pages[:5], (words, pages)
