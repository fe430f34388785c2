"""An HTTP server of the agent's /metrics, and of /healthz and /readyz for probes; it asks for no token."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gpuagent import __version__
from gpuagent.agent import Agent
from gpuagent.delivery.spool_file import SpoolError
from gpuagent.sampling.sampler import Health
from gpuagent_common.address import Address
from gpuagent_common.errors import GpuAgentError

_PREFIX = "gpuagent_agent_"

# Counters with a label `source`: name, help and figure.
_SOURCE_FIGURES: tuple[tuple[str, str, Callable[[Health], float]], ...] = (
    ("reads", "Reads.", lambda health: health.reads),
    ("failures", "Reads that failed.", lambda health: health.failures),
    ("late_ticks", "Ticks that began more than half a period late.", lambda health: health.late_ticks),
    ("missed_ticks", "Ticks skipped because the one before was not done.", lambda health: health.missed_ticks),
    ("busy_seconds", "Wall time spent in reads.", lambda health: health.busy_nano / 1e9),
)


def exposition(registry: CollectorRegistry) -> str:
    """Return the text that Prometheus reads."""
    return generate_latest(registry).decode()


class _AgentCollector(Collector):
    """The figures of one agent, read at each scrape."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def collect(self) -> Iterator[Metric]:
        """Yield each family with its present figures."""
        agent = self._agent
        about = {"version": __version__, "platform": agent.config.platform, "node_uuid": agent.node_uuid}
        info = GaugeMetricFamily(f"{_PREFIX}info", "Version and identity of the agent.", labels=list(about))
        info.add_metric(list(about.values()), 1)
        yield info
        sources = agent.sources
        for name, help_text, figure in _SOURCE_FIGURES:
            family = CounterMetricFamily(f"{_PREFIX}source_{name}", help_text, labels=["source"])
            for source, health in sources.items():
                family.add_metric([source], figure(health))
            yield family
        yield from self._spool_figures()
        tally = agent.uplink.tally
        yield _counter("messages_sent", "Messages sent, repetitions included.", tally.sent_messages)
        yield _counter("messages_acknowledged", "Messages that a collector has stored.", tally.acknowledged_messages)
        yield _counter("messages_rejected", "Messages that a collector rejected.", tally.rejected_messages)
        yield _counter("connections", "Streams that a collector welcomed.", tally.connections)
        yield _counter("connection_failures", "Streams that ended with an error, or never began.", tally.failures)
        yield _gauge("connected", "1 while a collector has welcomed the agent, else 0.", agent.uplink.connected)
        yield _counter("flushes", "Flushes of rows to the spool.", agent.flushes)

    def _spool_figures(self) -> Iterator[Metric]:
        """Yield nothing if the spool cannot be read: an old figure would be wrong."""
        try:
            extent = self._agent.spool.extent()
        except SpoolError:
            return
        yield _gauge("spool_messages", "Messages in the spool.", extent.messages)
        yield _gauge("spool_bytes", "Size of the messages in the spool.", extent.size_bytes)
        yield _gauge("spool_limit_bytes", "Size at which the oldest samples are dropped.", extent.limit_bytes)
        if extent.oldest_unix_nano is not None:
            age_seconds = time.time() - extent.oldest_unix_nano / 1e9
            yield _gauge("spool_oldest_age_seconds", "Age of the oldest sample in the spool.", age_seconds)


def _counter(name: str, help_text: str, value: float) -> Metric:
    return CounterMetricFamily(f"{_PREFIX}{name}", help_text, value=value)


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{_PREFIX}{name}", help_text, value=value)


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
        registry = CollectorRegistry()
        registry.register(_AgentCollector(agent))
        ProcessCollector(registry=registry)
        liveness = Liveness(lambda: agent.flushes)

        def answer(path: str) -> Answer:
            match path:
                case "/metrics":
                    return 200, exposition(registry)
                case "/healthz":
                    return (200, "ok\n") if liveness.is_alive() else (503, "the agent has stopped storing samples\n")
                case "/readyz":
                    return (200, "ok\n") if agent.uplink.connected else (503, "not connected; samples wait\n")
            return 404, "try /metrics, /healthz or /readyz\n"

        server = _Server(place, answer)
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
