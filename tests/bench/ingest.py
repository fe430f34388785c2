"""Rows a second, end to end: a load generator speaks the real protocol to a collector that commits to a durable file,
without and with TLS; in the same run the same rows are inserted into DuckDB with nothing between."""

import itertools
import multiprocessing
import time
import uuid
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path

import duckdb
import pyarrow as pa

from gpuagent_collector.trust.certificate_folder import CertificateFolder
from gpuagent_proto.channel import open_channel
from gpuagent_proto.connection import TlsFiles, bearer, read_token
from gpuagent_proto.keys import key
from gpuagent_proto.v1 import PROTOCOL_VERSION
from gpuagent_proto.v1 import telemetry_pb2 as telemetry
from gpuagent_proto.v1.records_pb2 import Records
from gpuagent_proto.v1.telemetry_service_pb2_grpc import TelemetryServiceStub
from tests.bench.figures import Figure
from tests.support.servers import Node

COLUMNS = [
    "utilization_percent",
    "memory_utilization_percent",
    "memory_used_bytes",
    "memory_reserved_bytes",
    "memory_total_bytes",
    "power_watts",
    "temperature_celsius",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "sm_active_percent",
    "tensor_active_percent",
    "dram_active_percent",
]
AGENTS = 8
ROWS_A_MESSAGE = 800
"""8 GPUs at 10 Hz, flushed every 10 s: what a busy node sends when it has been told to flush seldom."""

MESSAGES = 150
WINDOW = 16
REPEATS = 3


def measure(node: Node) -> list[Figure]:
    """Return rows a second into the collector, without and with TLS in turns, and into DuckDB alone."""
    rows = AGENTS * MESSAGES * ROWS_A_MESSAGE
    plain, encrypted = [], []
    with _served_with_tls(node) as (secured, tls):
        for _ in range(REPEATS):
            plain.append(rows / _send_all(node, None))
            encrypted.append(rows / _send_all(secured, tls))
    raw = [rows / _insert_all(node.folder / f"raw-{repeat}.duckdb") for repeat in range(REPEATS)]
    how = f"{AGENTS} agents × {MESSAGES} messages of {ROWS_A_MESSAGE} GPU rows of {len(COLUMNS)} values"
    return [
        Figure(name="ingest, acknowledged after commit", unit="rows/s", values=plain, note=how),
        Figure(name="the same over TLS", unit="rows/s", values=encrypted, note="TLS 1.3, EC P-256, in turns with it"),
        Figure(
            name="the same rows into DuckDB alone",
            unit="rows/s",
            values=raw,
            note="Arrow inserts of 6,400 rows, each committed",
        ),
    ]


@contextmanager
def _served_with_tls(beside: Node) -> Iterator[tuple[Node, TlsFiles]]:
    """Serve another store with TLS."""
    folder = beside.folder / "encrypted"
    certificates = CertificateFolder(path=folder / "tls")
    certificates.init(["127.0.0.1"])
    node, server = Node(folder), certificates.server
    try:
        node.serve(options=[f"--tls-cert={server.certificate}", f"--tls-key={server.key}"])
        yield node, TlsFiles(ca=certificates.ca)
    finally:
        node.close()


def _send_all(node: Node, tls: TlsFiles | None) -> float:
    """Return the seconds from the first message to the last acknowledgement; the senders are processes of their own."""
    context = multiprocessing.get_context("spawn")
    address, token_file = node.environment["GPUAGENT_COLLECTOR"], Path(node.environment["GPUAGENT_TOKEN_FILE"])
    ready, go = context.Barrier(AGENTS + 1), context.Event()
    senders = [context.Process(target=_send, args=(address, token_file, tls, ready, go)) for _ in range(AGENTS)]
    for sender in senders:
        sender.start()
    ready.wait()
    start = time.perf_counter()
    go.set()
    for sender in senders:
        sender.join()
        assert sender.exitcode == 0
    return time.perf_counter() - start


def _send(address: str, token_file: Path, tls: TlsFiles | None, ready: Barrier, go: Event) -> None:
    session_uuid = str(uuid.uuid4())
    records = _records(ROWS_A_MESSAGE)
    batches = (
        telemetry.AgentMessage(batch=telemetry.Batch(session_id=key(session_uuid), number=number, records=records))
        for number in itertools.count(1)
    )
    acknowledged, free = 0, multiprocessing.get_context("spawn").Semaphore(WINDOW)

    def requests() -> Iterator[telemetry.AgentMessage]:
        session = telemetry.SpooledSession(session_uuid=session_uuid, node_uuid=session_uuid)
        yield telemetry.AgentMessage(
            hello=telemetry.Hello(protocol_version=PROTOCOL_VERSION, node_uuid=session_uuid, sessions=[session])
        )
        ready.wait()
        go.wait()
        for _ in range(MESSAGES):
            free.acquire()
            yield next(batches)

    with open_channel(address, tls, ()) as channel:
        call = TelemetryServiceStub(channel).Connect(requests(), metadata=bearer(read_token(token_file)))
        for message in call:
            for mark in message.ack.marks:
                for _ in range(mark.number - acknowledged):
                    free.release()
                acknowledged = mark.number
            if acknowledged == MESSAGES:
                break
        call.cancel()


def _records(rows: int) -> bytes:
    records = Records()
    table = records.tables.add(name="gpu_samples", rows=rows)
    start = time.time_ns()
    table.columns.add(name="time", integers=array("q", [start + row * 10**8 for row in range(rows)]).tobytes())
    table.columns.add(name="device_id", integers=array("q", [row % 8 for row in range(rows)]).tobytes())
    for index, name in enumerate(COLUMNS):
        table.columns.add(name=name, doubles=array("d", [index + (row % 97) / 7 for row in range(rows)]).tobytes())
    return records.SerializeToString()


def _insert_all(file: Path) -> float:
    """Return the seconds that DuckDB alone needs for the same rows, in inserts of as many messages as a group has."""
    table = Records.FromString(_records(ROWS_A_MESSAGE)).tables[0]
    arrays = {
        column.name: pa.Array.from_buffers(
            pa.float64() if column.HasField("doubles") else pa.int64(),
            table.rows,
            [None, pa.py_buffer(column.doubles or column.integers)],
        )
        for column in table.columns
    }
    rows = pa.concat_tables([pa.table(arrays)] * AGENTS).combine_chunks()  # noqa: F841 - DuckDB finds it by its name
    with duckdb.connect(str(file)) as connection:
        connection.execute("CREATE TABLE samples AS SELECT * FROM rows LIMIT 0")
        start = time.perf_counter()
        for _ in range(MESSAGES):
            connection.execute("INSERT INTO samples SELECT * FROM rows")
        return time.perf_counter() - start
