"""A web server of the collector in this process, and requests to it as they are on the wire."""

import base64
import http.client
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from gpuagent_collector.query.execute import Limits
from gpuagent_collector.store import Store
from gpuagent_collector.trust.tokens import Tokens
from gpuagent_collector.web.asker import Asker
from gpuagent_collector.web.layout import Page
from gpuagent_collector.web.server import WebServer
from gpuagent_collector.web.site import Sources
from gpuagent_collector.web.site import pages as pages_of
from gpuagent_common.address import Address

TOKEN = "let-me-in"
BEARER = {"Authorization": f"Bearer {TOKEN}"}

# A bound for hangs: a busy machine takes its time.
PATIENCE_SECONDS = 240.0


def basic(password: str, name: str = "anybody") -> dict[str, str]:
    """Return the header with which a browser logs in."""
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    text: str


def fetch(address: Address, path: str, headers: dict[str, str] | None = None, method: str = "GET") -> Answer:
    """Send a request, by default with the token."""
    connection = http.client.HTTPConnection(address.host, address.port, timeout=PATIENCE_SECONDS)
    try:
        connection.request(method, path, headers=BEARER if headers is None else headers)
        response = connection.getresponse()
        return Answer(status=response.status, headers=response.headers, text=response.read().decode())
    finally:
        connection.close()


def exchange(address: Address, request: bytes) -> bytes:
    """Send bytes as they are, and return everything that comes back."""
    with socket.create_connection((address.host, address.port), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


@contextmanager
def served(pages: Sequence[Page]) -> Iterator[WebServer]:
    server = WebServer(Address(host="127.0.0.1", port=0), pages, tokens=Tokens(TOKEN, None))
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def served_store(
    store: Store, is_ready: Callable[[], bool] = lambda: True, trouble: Callable[[], str] = str
) -> Iterator[Address]:
    """Serve all pages of a store on a free port."""
    sources = Sources(
        ask=Asker(store.connect, Limits()), store="runs.duckdb", instruments=(), is_ready=is_ready, trouble=trouble
    )
    with served(pages_of(sources)) as server:
        yield server.address
