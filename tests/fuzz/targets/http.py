"""Requests to the collector's web server, over a socket: an answer below 500 within seconds, whatever is asked.

An input that begins with `r` is sent as it is; others are made into a request that has the form of one.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from gpuagent_collector.query.execute import Limits
from gpuagent_collector.store import Store
from gpuagent_collector.web.asker import Asker
from gpuagent_collector.web.site import Sources, pages
from tests.fuzz.choices import Choices
from tests.fuzz.tally import Attempt
from tests.support.http import BEARER, exchange, served
from tests.support.recent import fill

TOKENS = (
    b"GET |HEAD |POST | HTTP/1.1\r\n| HTTP/1.0\r\n| HTTP/9.9\r\n|Host: x\r\n|\r\n\r\n|\n\n|Authorization: |"
    b"Bearer let-me-in|Basic |Content-Length: -1|Transfer-Encoding: chunked|%00|/metrics|/report|/healthz|/readyz|?|"
    b"&|sort=|filter=|runs=|=|%ff|..|//"
).split(b"|")

_METHODS = ("GET", "GET", "HEAD", "POST", "OPTIONS", "TRACE", "get", "BREW", "")
_PATHS = ("/", "/report", "/metrics", "/healthz", "/readyz", "/nothing", "//", "/..", "*", "http://x/", "")
_NAMES = ("runs", "experiment", "filter", "sort", "by", "where", "workload", "platform", "metric", "refresh")
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) [^\r\n]*\r\n")
# The protocol's own words for a method and a version that a server does not have.
_OF_HTTP = (501, 505)


@contextmanager
def opened(folder: Path) -> Iterator[Attempt]:
    """Serve everything that a collector serves, of a store with hostile names."""
    with Store.open(str(folder / "runs.duckdb")) as store:
        fill(store)
        ask = Asker(store.connect, Limits(timeout_seconds=5.0))
        sources = Sources(ask=ask, store="runs.duckdb", instruments=(), is_ready=lambda: True)
        with served(pages(sources)) as server:

            def attempt(data: bytes) -> None:
                request = data[1:] if data[:1] == b"r" else _made(Choices(data))
                _check(exchange(server.address, request))

            yield attempt


def _made(choices: Choices) -> bytes:
    path = choices.one_of(_PATHS)
    pairs = [f"{choices.one_of(_NAMES)}={quote(choices.piece())}" for _ in range(choices.below(4))]
    method, version = choices.one_of(_METHODS), choices.one_of(("1.0", "1.1", "1.1", "2.0", ""))
    lines = [f"{method} {path}{'?' if pairs else ''}{'&'.join(pairs)} HTTP/{version}".encode()]
    if choices.below(8):
        lines += [f"{name}: {value}".encode() for name, value in BEARER.items()]
    lines += [choices.piece() + b": " + choices.piece() for _ in range(choices.below(3))]
    return b"\r\n".join([*lines, b"", choices.rest()])


def _check(answer: bytes) -> None:
    if not answer.startswith(b"HTTP/"):
        return  # nothing, or HTTP/0.9, which has no status
    status = _STATUS.match(answer)
    assert status, answer[:100]
    assert int(status[1]) < 500 or int(status[1]) in _OF_HTTP, answer[:300]
