"""VictoriaMetrics, where it is installed, under the same load: a request a second for each node.

By remote write, uncompressed and without TLS, on a connection for each node. All are healthy.
"""

import http.client
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which

import numpy as np
import psutil

from benchmarks.gpu_series import Floats, Integers
from benchmarks.ingest.remote_write import HEADERS, write_request
from benchmarks.ingest.sending import send_all, write_messages
from benchmarks.ingest.victoria_metrics import REMOTE_WRITE
from benchmarks.load.messages import DrawnValues
from benchmarks.load.plan import SimulatedNode

SECONDS = 20
_PROCESSES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The resources of another server under the load."""

    cpu_percent: float
    rss_mib: float
    messages_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Second:
    """One second of a node, with what `write_request` asks of rows."""

    node: int
    simulated: SimulatedNode
    drawn: DrawnValues
    number: int

    def series(self) -> Iterator[tuple[int, str, Integers, Floats]]:
        micros = self.simulated.period_micros
        ticks = np.arange(1_000_000 // micros) + self.number * (1_000_000 // micros)
        millis = (self.simulated.start_unix_micros + micros * ticks) // 1000
        return self.drawn.series(self.simulated, self.number, millis)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Paced:
    """Sends one message a second for each of some nodes, on as many connections."""

    port: int
    nodes: int

    def __call__(self, messages: Sequence[bytes], wait: Callable[[], object]) -> None:
        connections = [http.client.HTTPConnection("127.0.0.1", self.port) for _ in range(self.nodes)]
        for connection in connections:
            connection.connect()
        wait()
        due = time.monotonic()
        for place, message in enumerate(messages):
            connection = connections[place % self.nodes]
            connection.request("POST", "/api/v1/write", message, HEADERS)
            answer = connection.getresponse()
            answer.read()
            if answer.status >= http.client.MULTIPLE_CHOICES:
                raise OSError(f"VictoriaMetrics answered {answer.status}")
            if place % self.nodes == self.nodes - 1:
                due += 1
                time.sleep(max(0.0, due - time.monotonic()))


def measure(folder: Path, nodes: Sequence[SimulatedNode], seed: int) -> Peer | None:
    """Return what VictoriaMetrics takes for the samples of these nodes; None: it is not installed."""
    if not which(REMOTE_WRITE.program or ""):
        return None
    drawn, senders = DrawnValues(seed), {}
    folder.mkdir()
    with REMOTE_WRITE.serve(folder) as server:
        for place in range(_PROCESSES):
            part = nodes[place::_PROCESSES]
            file = folder / f"messages-{place}"
            seconds = (
                _Second(node=node.index, simulated=node, drawn=drawn, number=number)
                for number in range(SECONDS)
                for node in part
            )
            write_messages(file, (write_request(each) for each in seconds))  # type: ignore[arg-type]
            if part:
                senders[file] = _Paced(port=server.sender(0).port, nodes=len(part))  # type: ignore[attr-defined]
        process = psutil.Process(server.pid)
        before = process.cpu_times()
        wall_seconds = send_all(senders)
        server.settle()
        after = process.cpu_times()
        return Peer(
            cpu_percent=100 * (after.user + after.system - before.user - before.system) / wall_seconds,
            rss_mib=process.memory_info().rss / 2**20,
            messages_per_second=len(nodes) * SECONDS / wall_seconds,
        )
