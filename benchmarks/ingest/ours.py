"""gpuagent's collector on a durable file: the real protocol, acknowledged after the commit."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.gpu_series import records
from benchmarks.ingest.contender import Contender, Sender
from benchmarks.ingest.duckdb_alone import sum_of
from gpuagent_collector.trust.serving import CertificateFolder
from gpuagent_common.channel import open_channel
from gpuagent_common.connection import TlsFiles, bearer, read_token
from gpuagent_common.keys import key
from gpuagent_proto.v1 import PROTOCOL_VERSION
from gpuagent_proto.v1 import telemetry_pb2 as telemetry
from gpuagent_proto.v1.telemetry_service_pb2_grpc import TelemetryServiceStub
from tests.support.servers import Node

# Unacknowledged messages in flight, as from an agent.
WINDOW = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """The stream of an agent with a large backlog."""

    address: str
    token_file: Path
    node_uuid: str
    tls: TlsFiles | None = None

    def __call__(self, messages: Sequence[bytes], wait: Callable[[], object]) -> None:
        """Send all messages after the collector's welcome, and wait for the last acknowledgement."""
        free, go = threading.Semaphore(WINDOW), threading.Event()
        acknowledged = 0
        with open_channel(self.address, self.tls, ()) as channel:
            requests = self._requests(messages, go, free)
            call = TelemetryServiceStub(channel).Connect(requests, metadata=bearer(read_token(self.token_file)))
            for answer in call:
                if answer.HasField("welcome"):
                    wait()
                    go.set()
                for mark in answer.ack.marks:
                    free.release(mark.number - acknowledged)
                    acknowledged = mark.number
                if acknowledged == len(messages):
                    break
            call.cancel()

    def _requests(
        self, messages: Sequence[bytes], go: threading.Event, free: threading.Semaphore
    ) -> Iterator[telemetry.AgentMessage]:
        session = telemetry.SpooledSession(session_uuid=self.node_uuid, node_uuid=self.node_uuid)
        yield telemetry.AgentMessage(
            hello=telemetry.Hello(protocol_version=PROTOCOL_VERSION, node_uuid=self.node_uuid, sessions=[session])
        )
        go.wait()
        for number, content in enumerate(messages, 1):
            free.acquire()
            batch = telemetry.Batch(session_id=key(self.node_uuid), number=number, records=content)
            yield telemetry.AgentMessage(batch=batch)


@dataclass(slots=True, kw_only=True)
class _Collector:
    node: Node
    pid: int
    tls: TlsFiles | None
    end: Callable[[], object]

    def sender(self, node: int) -> Sender:
        return Stream(
            address=self.node.environment["GPUAGENT_COLLECTOR"],
            token_file=Path(self.node.environment["GPUAGENT_TOKEN_FILE"]),
            node_uuid=f"node {node}",
            tls=self.tls,
        )

    def settle(self) -> None:
        """Acknowledged values are durable, and can be read."""

    def read_back(self, column: str) -> tuple[int, float]:
        self.end()
        return sum_of(self.node.store, "gpu_samples", column)

    def disk_bytes(self) -> int:
        """Its file after its end, with the log merged."""
        self.end()
        return self.node.store.stat().st_size

    def compact(self) -> int:
        self.end()
        self.node.run("collector", "compact", "--store", str(self.node.store))
        return self.disk_bytes()


@contextmanager
def _serve(folder: Path, with_tls: bool) -> Iterator[_Collector]:
    node, options, tls = Node(folder), [], None
    if with_tls:
        certificates = CertificateFolder(path=folder / "tls")
        certificates.init(["127.0.0.1"])
        server, tls = certificates.server, TlsFiles(ca=certificates.ca)
        options = [f"--tls-cert={server.certificate}", f"--tls-key={server.key}"]
    try:
        process = node.serve(options=options)
        yield _Collector(node=node, pid=process.pid, tls=tls, end=node.close)
    finally:
        node.close()


PLAIN = Contender(
    name="gpuagent",
    program=None,
    encoding="gpuagent",
    encode=records,
    serve=partial(_serve, with_tls=False),
)
ENCRYPTED = Contender(
    name="gpuagent, TLS",
    program=None,
    encoding="gpuagent",
    encode=records,
    serve=partial(_serve, with_tls=True),
)
