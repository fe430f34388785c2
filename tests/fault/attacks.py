"""`python -m tests.fault.attacks`: what an agent's messages can do to a collector in 1 GiB of memory.

Each attack is made by an agent with a token of its own, while an honest agent delivers and a viewer asks. A row for
each shows how long these two waited at worst, and what the collector took. Exit code 1: the collector ended. As root.
"""

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import psutil

from gpuagent.sampling.rows import Row, encode_records
from gpuagent_collector.query.reader import open_reader
from gpuagent_collector.trust.tokens import Scope, TokenFile
from gpuagent_common.connection import bearer
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.keys import invited_run, key
from gpuagent_proto.v1 import PROTOCOL_VERSION, records_pb2
from gpuagent_proto.v1 import telemetry_pb2 as wire
from tests.support.servers import BIN, Node

MEMORY_BYTES = 2**30
_CONNECT = "/gpuagent_proto.v1.TelemetryService/Connect"
_PAUSE_SECONDS = 0.1
_PATIENCE_SECONDS = 120.0

HEADER = """\
| attack | MiB sent | refused | took | query, worst | acknowledgement, worst | peak memory |
|---|--:|--:|--:|--:|--:|--:|"""


def _requests(count: int, tag: str) -> bytes:
    rows: list[Row] = [
        {"run_id": invited_run("x", f"{tag}{n}"), "nodes": 2, "invitation": f"{tag}{n}", "time": n}
        for n in range(count)
    ]
    return encode_records({"run_requests": rows})


def _states(count: int, tag: str) -> bytes:
    rows: list[Row] = [{"run_id": f"{tag}-{n}", "status": "running", "time": n} for n in range(count)]
    return encode_records({"run_states": rows})


def _one_column(number: int) -> bytes:
    names = ("device_id", "memory_used_bytes", "memory_total_bytes", "throttle_reasons", "process_count")
    table = records_pb2.Table(name="gpu_samples", rows=250_000)
    for name in ("time", names[number % len(names)]):
        table.columns.add(name=name, integers=bytes(8 * table.rows))
    return records_pb2.Records(tables=[table]).SerializeToString()


def _empty_texts() -> bytes:
    table = records_pb2.Table(name="sessions", rows=500_000)
    for name in ("os", "kernel", "cpu_model", "boot_id", "hostname", "platform"):
        table.columns.add(name=name, texts=records_pb2.Texts(offsets=bytes(4 * (table.rows + 1))))
    return records_pb2.Records(tables=[table]).SerializeToString()


def _field(number: int, content: bytes) -> bytes:
    """Return a field of bytes as protobuf writes it."""
    length = len(content)
    head = bytearray([number << 3 | 2])
    while length > 127:
        head.append(length & 127 | 128)
        length >>= 7
    return bytes([*head, length]) + content


_TINY = 8 * 2**20 - 64
_HOUR_NANO = 3600 * 10**9

# Name → records of the messages that are sent.
ATTACKS: dict[str, Callable[[], Iterator[bytes]]] = {
    "20,000 runs of two nodes": lambda: iter([_requests(20_000, "a")]),
    "runs of two nodes, as many as are taken": lambda: (_requests(10_000, f"b{n}-") for n in range(20)),
    "400,000 runs have states": lambda: iter([_states(400_000, "c")]),
    "100,000 open runs whose agent leaves": lambda: (_states(10_000, f"d{n}") for n in range(10)),
    "other columns in each message": lambda: (_one_column(n) for n in range(24)),
    "half a million empty texts": lambda: (_empty_texts() for _ in range(8)),
    "eight million tables": lambda: iter([b"\x0a\0" * _TINY] * 4),
    "eight million columns": lambda: iter([_field(1, b"\x1a\0" * _TINY)] * 4),
    "deep JSON": lambda: (
        encode_records({"run_requests": [{"run_id": f"e{n}", "parameters": "[" * 10**6}]}) for n in range(16)
    ),
    "a row in each hour of a century": lambda: (
        encode_records({"core_samples": [{"core": 1, "time": (n * 5000 + hour) * _HOUR_NANO} for hour in range(5000)]})
        for n in range(90)
    ),
    "ten thousand small messages": lambda: (encode_records({"core_samples": [{"core": n}]}) for n in range(10_000)),
}
# Name → whole messages, each the first or the second of a stream of its own.
STREAMS: dict[str, tuple[bytes, int]] = {
    "eight million sessions in a hello": (_field(1, b"\x22\0" * _TINY), 8),
    "eight million runs in an answer": (_field(4, b"\x12\0" * _TINY), 8),
}


@dataclass(slots=True, kw_only=True)
class Waits:
    """How long somebody waited at worst, for each question until it is told to end."""

    ask: Callable[[], object]
    worst_seconds: float = 0.0
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.ended.wait(_PAUSE_SECONDS):
            started = time.monotonic()
            with suppress(GpuAgentError, grpc.RpcError):
                self.ask()
            self.worst_seconds = max(self.worst_seconds, time.monotonic() - started)


class Agent:
    """The agent's half of a stream, spoken by hand: whole messages as bytes, and an acknowledgement for each batch."""

    def __init__(self, address: str, token: str, node_uuid: str) -> None:
        self.session_uuid = os.urandom(16).hex()
        self.node_uuid = node_uuid
        self.refused = 0
        self._number = 0
        self._todo: list[bytes] = []
        self._changed = threading.Condition()
        self._channel = grpc.insecure_channel(address, options=[("grpc.max_send_message_length", 2**25)])
        connect: Any = self._channel.stream_stream(_CONNECT, response_deserializer=wire.CollectorMessage.FromString)
        self._call = connect(self._messages(), metadata=bearer(token), compression=grpc.Compression.Gzip)

    def _messages(self) -> Iterator[bytes]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._todo)
                content = self._todo.pop(0)
            if not content:
                return
            yield content

    def send(self, content: bytes) -> None:
        """Send a message as it is; none ends the stream."""
        with self._changed:
            self._todo.append(content)
            self._changed.notify()

    def greet(self) -> None:
        session = wire.SpooledSession(session_uuid=self.session_uuid, node_uuid=self.node_uuid)
        hello = wire.Hello(protocol_version=PROTOCOL_VERSION, node_uuid=self.node_uuid, sessions=[session])
        self.send(wire.AgentMessage(hello=hello).SerializeToString())
        next(self._call)

    def deliver(self, records: bytes) -> None:
        self._number += 1
        batch = wire.Batch(session_id=key(self.session_uuid), number=self._number, records=records)
        self.send(wire.AgentMessage(batch=batch).SerializeToString())

    def await_acknowledged(self) -> None:
        """Wait for the last batch; count those that are refused."""
        for message in self._call:
            self.refused += message.HasField("rejection")
            if any(mark.number == self._number for mark in message.ack.marks):
                return

    def close(self) -> None:
        self.send(b"")
        self._call.cancel()
        self._channel.close()


class Site:
    """A collector in its own limit of memory, an honest agent, a viewer and an attacker."""

    def __init__(self, folder: Path) -> None:
        self.node = Node(folder)
        group = _memory_group()
        program = ["collector"]
        if group is not None:
            joining = f'echo $$ > {group}/cgroup.procs; exec "$@"'
            program = ["/bin/sh", "-c", joining, "sh", str(BIN / "collector")]
        self.process = self.node.serve(program=program)
        self.address = self.node.environment["GPUAGENT_COLLECTOR"]
        tokens = TokenFile.beside(Path(self.node.environment["GPUAGENT_TOKEN_FILE"]))
        made = {scope: tokens.create(scope, scope.value) for scope in (Scope.AGENT, Scope.VIEWER)}
        self._tokens = tokens
        self.honest = Agent(self.address, made[Scope.AGENT], "honest")
        self.honest.greet()
        viewer = folder / "viewer"
        viewer.touch(mode=0o600)
        viewer.write_text(made[Scope.VIEWER])
        self.reader = open_reader(address=self.address, token_file=viewer, store=None)

    def attacker(self, name: str) -> Callable[[], Agent]:
        """Return what opens a stream of an attacker who has nothing yet."""
        token = self._tokens.create(Scope.AGENT, name)
        return lambda: Agent(self.address, token, name)

    def deliver(self) -> None:
        self.honest.deliver(encode_records({"core_samples": [{"core": 1, "time": time.time_ns()}]}))
        self.honest.await_acknowledged()

    @contextmanager
    def watched(self) -> Iterator[Sequence[Waits]]:
        waits = [Waits(ask=lambda: self.reader.sql("SELECT 1")), Waits(ask=self.deliver)]
        threads = [threading.Thread(target=each.run, daemon=True) for each in waits]
        for thread in threads:
            thread.start()
        yield waits
        for each, thread in zip(waits, threads, strict=True):
            each.ended.set()
            thread.join()


def _memory_group() -> Path | None:
    """Make a control group with the limit of memory; None: there is no controller of memory here."""
    for root, name in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        group = root / f"gpuagent-attacks-{os.getpid()}"
        with suppress(OSError):
            group.mkdir(exist_ok=True)
            (group / name).write_text(str(MEMORY_BYTES))
            return group
    return None


@dataclass(slots=True, kw_only=True)
class Attack:
    """What is sent, made before anything is measured."""

    name: str
    contents: Sequence[bytes]
    streams: int = 0

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.contents)) * max(1, self.streams)

    def make(self, open_stream: Callable[[], Agent]) -> int:
        """Send everything; return how many messages or streams were refused."""
        if self.streams:
            return sum(self._refuses(open_stream()) for _ in range(self.streams))
        agent = open_stream()
        agent.greet()
        for records in self.contents:
            agent.deliver(records)
        with suppress(grpc.RpcError):
            agent.await_acknowledged()
        agent.close()
        return agent.refused

    def _refuses(self, agent: Agent) -> bool:
        try:
            if self.name != "eight million sessions in a hello":
                agent.greet()
            agent.send(self.contents[0])
            agent.await_acknowledged()
            return False
        except grpc.RpcError:
            return True
        finally:
            agent.close()


def _prepare(name: str) -> Attack:
    if name in STREAMS:
        content, streams = STREAMS[name]
        return Attack(name=name, contents=[content], streams=streams)
    return Attack(name=name, contents=list(ATTACKS[name]()))


def main() -> None:
    """Make the attacks, print a row for each, and how long the collector takes to stop."""
    names = [*ATTACKS, *STREAMS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help="these alone")
    wanted = parser.parse_args().only or names
    with tempfile.TemporaryDirectory(prefix="gpuagent-attacks-") as folder:
        site = Site(Path(folder))
        collector = psutil.Process(site.process.pid)
        print(HEADER, flush=True)
        for attack in map(_prepare, wanted):
            open_stream = site.attacker(attack.name)
            started = time.monotonic()
            with site.watched() as (query, delivery):
                refused = attack.make(open_stream)
            seconds = time.monotonic() - started
            if site.process.poll() is not None:
                sys.exit(f"the collector ended with {site.process.returncode} at: {attack.name}")
            sent_mib, peak_mib = attack.size_bytes / 2**20, _peak_kib(collector.pid) / 1024
            print(
                f"| {attack.name} | {sent_mib:.1f} | {refused} | {seconds:.1f} s | {query.worst_seconds:.2f} s "
                f"| {delivery.worst_seconds:.2f} s | {peak_mib:,.0f} MiB |",
                flush=True,
            )
        started = time.monotonic()
        site.honest.close()
        code = site.node.stop(site.process, signal.SIGTERM)
        print(f"\nIt ended with {code} {time.monotonic() - started:.1f} s after SIGTERM.")


def _peak_kib(pid: int) -> int:
    """Return the highest resident memory of a process."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1])


if __name__ == "__main__":
    main()
