"""Serves what the agent tells of itself, without a token: /metrics, and /healthz and /readyz for probes."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from gpuagent.agent import Agent
from gpuagent.metrics_http.own_metrics import CONTENT_TYPE, exposition, families
from gpuagent_common.connection import host_and_port
from gpuagent_common.errors import GpuAgentError, MisuseError

# An agent that has not flushed for so long hangs: the longest interval that a collector can ask for is a minute.
STANDSTILL_SECONDS = 150.0

# When one more comes, the oldest is cut.
MAX_CONNECTIONS = 8

_TEXT = "text/plain; charset=utf-8"

# Status, content type and body.
Answer = tuple[int, str, str]


@contextmanager
def serving(address: str, agent: Agent) -> Iterator[str]:
    """Serve until the end of the block; yield where.

    Raises:
        MisuseError: the address is none.
        GpuAgentError: it cannot be listened on.
    """
    host, port = _parsed(address)
    try:
        server = _Server(host, port, _routes(agent))
    except OSError as error:
        raise GpuAgentError(f"cannot listen on {address} (--metrics): {error.strerror or error}") from error
    thread = threading.Thread(target=server.serve_forever, name="own metrics", daemon=True)
    thread.start()
    try:
        yield f"{f'[{host}]' if ':' in host else host}:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Liveness:
    """Tells whether an agent's flushes still go on, from what it saw when it was asked before."""

    def __init__(self, flushes: Callable[[], int], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._flushes = flushes
        self._monotonic = monotonic
        self._seen = -1, monotonic()

    def is_alive(self) -> bool:
        """Return False when there was no flush for longer than there ever is none."""
        flushes, now = self._flushes(), self._monotonic()
        if flushes != self._seen[0]:
            self._seen = flushes, now
        return now - self._seen[1] < STANDSTILL_SECONDS


def _routes(agent: Agent) -> dict[str, Callable[[], Answer]]:
    liveness = Liveness(lambda: agent.flushes)

    def health() -> Answer:
        return (200, _TEXT, "ok\n") if liveness.is_alive() else (503, _TEXT, "it has stopped storing what it samples\n")

    def readiness() -> Answer:
        return (200, _TEXT, "ok\n") if agent.uplink.connected else (503, _TEXT, "no collector; samples wait\n")

    return {
        "/metrics": lambda: (200, CONTENT_TYPE, exposition(families(agent))),
        "/healthz": health,
        "/readyz": readiness,
    }


def _parsed(address: str) -> tuple[str, int]:
    place = host_and_port(address)
    if place is None:
        raise MisuseError(f"--metrics takes HOST:PORT, as 127.0.0.1:9465, not {address!r}")
    return place


class _Server(ThreadingHTTPServer):
    """A thread for each connection, of which MAX_CONNECTIONS may be open."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int, routes: dict[str, Callable[[], Answer]]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.routes = routes
        self._open: dict[Any, None] = {}
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind without asking the name service what this host is called."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread of its own."""
        connections = tuple(self._open)
        if len(connections) >= MAX_CONNECTIONS:
            self._open.pop(connections[0], None)
            with suppress(OSError):
                connections[0].shutdown(socket.SHUT_RDWR)
        self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection that is done with."""
        self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Pass over clients that went away."""


class _Handler(BaseHTTPRequestHandler):
    """Answers one request; the protocol is HTTP/1.0, so that a connection ends with its answer."""

    server: _Server
    timeout = 10.0

    def do_GET(self) -> None:
        """Answer a known path."""
        route = self.server.routes.get(self.path.partition("?")[0])
        status, content_type, body = route() if route else (404, _TEXT, "there are /metrics, /healthz and /readyz\n")
        encoded = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def version_string(self) -> str:
        """Return what the answers say of the server: not which version of what."""
        return "gpuagent"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is given
        """Say nothing of each request."""
