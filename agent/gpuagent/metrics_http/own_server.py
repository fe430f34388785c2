"""An HTTP server of the agent's /metrics, and of /healthz and /readyz for probes; it asks for no token."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

from gpuagent.agent import Agent
from gpuagent.metrics_http.own_metrics import exposition, registry_of
from gpuagent_common.address import Address
from gpuagent_common.errors import GpuAgentError

# An agent without a flush for this long hangs: a collector can ask for an interval of a minute at most.
STANDSTILL_SECONDS = 150.0

# One more connection closes the oldest.
MAX_CONNECTIONS = 8

# HTTP status and text.
Answer = tuple[int, str]


@contextmanager
def serving(address: str, agent: Agent) -> Iterator[str]:
    """Serve until the end of the block; yield HOST:PORT.

    Raises:
        MisuseError: `address` is not HOST:PORT.
        GpuAgentError: the address cannot be used.
    """
    place = Address.parse(address)
    try:
        server = _Server(place, _answers(agent))
    except OSError as error:
        raise GpuAgentError(f"cannot listen on {address} (--metrics): {error.strerror or error}") from error
    thread = threading.Thread(target=server.serve_forever, name="own metrics", daemon=True)
    thread.start()
    try:
        yield str(place.at(int(server.server_address[1])))
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Liveness:
    """A check that an agent still flushes, by the count of flushes at the check before."""

    def __init__(self, flushes: Callable[[], int], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._flushes = flushes
        self._monotonic = monotonic
        self._seen = -1, monotonic()

    def is_alive(self) -> bool:
        """Return False after STANDSTILL_SECONDS without a flush."""
        flushes, now = self._flushes(), self._monotonic()
        if flushes != self._seen[0]:
            self._seen = flushes, now
        return now - self._seen[1] < STANDSTILL_SECONDS


def _answers(agent: Agent) -> Callable[[str], Answer]:
    registry, liveness = registry_of(agent), Liveness(lambda: agent.flushes)

    def answer(path: str) -> Answer:
        match path:
            case "/metrics":
                return 200, exposition(registry)
            case "/healthz":
                return (200, "ok\n") if liveness.is_alive() else (503, "the agent has stopped storing samples\n")
            case "/readyz":
                return (200, "ok\n") if agent.uplink.connected else (503, "not connected; samples wait\n")
        return 404, "try /metrics, /healthz or /readyz\n"

    return answer


class _Server(ThreadingTCPServer):
    """A server with a thread for each of at most MAX_CONNECTIONS connections."""

    # Not an HTTPServer: that asks the name service for this host's name.
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def __init__(self, place: Address, answer: Callable[[str], Answer]) -> None:
        self.address_family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
        self.answer = answer
        self._open: dict[Any, None] = {}
        super().__init__((place.host, place.port), _Handler)

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
        """Close a connection."""
        self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnected."""


class _Handler(BaseHTTPRequestHandler):
    """A handler of one request: HTTP/1.0, so the connection ends with its answer."""

    server: _Server
    timeout = 10.0

    def do_GET(self) -> None:
        """Answer a known path."""
        status, text = self.server.answer(self.path.partition("?")[0])
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        """Return the Server header without any version."""
        return "gpuagent"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is given
        """Log no requests."""
