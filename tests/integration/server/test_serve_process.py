import asyncio
import signal
import socket
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import duckdb
import grpc
import psutil
import pytest

from gpuagent_collector.store import Store
from gpuagent_common.connection import bearer, read_token
from gpuagent_proto.v1.query_service_pb2 import QueryRequest
from gpuagent_proto.v1.query_service_pb2_grpc import QueryServiceStub
from tests.integration.server.agents import Agent, core_rows
from tests.support.servers import Node, until
from tests.support.stores import put_store

pytestmark = pytest.mark.slow


LAST = 400
# Rows of each message.
ROWS = 20


def cores(number: int) -> range:
    return range(number * ROWS, (number + 1) * ROWS)


class Spool:
    """What an agent keeps: it forgets a message when that is acknowledged, and never before."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.session_uuid = "session-1"

    async def deliver(self, node: Node, until_acknowledged: int) -> None:
        """Send everything that is not acknowledged, and return once this number is."""
        address = node.environment["GPUAGENT_COLLECTOR"]
        async with grpc.aio.insecure_channel(address) as channel:
            token = read_token(Path(node.environment["GPUAGENT_TOKEN_FILE"]))
            agent = Agent(channel=channel, session_uuid=self.session_uuid, token=token)
            welcome = await agent.connect()
            committed = max((mark.number for mark in welcome.marks), default=0)
            assert committed >= self.acknowledged, "something that was acknowledged is gone"
            sending = asyncio.create_task(self._send(agent))
            while self.acknowledged < until_acknowledged:
                self.acknowledged = max([self.acknowledged, *agent.session_marks(await agent.read())])
            sending.cancel()
            with suppress(asyncio.CancelledError):
                await sending

    async def _send(self, agent: Agent) -> None:
        for number in range(self.acknowledged + 1, LAST + 1):
            await agent.send(number, core_rows(*cores(number)))


# On a lake each start takes several times as long.
@pytest.mark.parametrize(
    ("prefix", "killed_after"), [("", (1, LAST // 4, LAST // 2)), ("ducklake:", (LAST // 4,))], ids=["file", "lake"]
)
def test_killing_the_collector_in_the_middle_loses_nothing_and_stores_nothing_twice(
    node: Node, prefix: str, killed_after: tuple[int, ...]
) -> None:
    name = put_store(f"{prefix}{node.store}")
    spool = Spool()
    collector, address = node.serve(options=["--store", name]), node.environment["GPUAGENT_COLLECTOR"]
    for acknowledged in killed_after:
        asyncio.run(spool.deliver(node, acknowledged))
        assert node.stop(collector, signal.SIGKILL) == -signal.SIGKILL
        # Its port is free at once.
        collector = node.serve(address, ["--store", name])
        assert node.environment["GPUAGENT_COLLECTOR"] == address
    asyncio.run(spool.deliver(node, LAST))
    assert node.stop(collector) == 0
    with Store.open(name, read_only=True) as store:
        rows = store.connect().execute("SELECT core FROM core_samples ORDER BY core").fetchall()
    assert [core for (core,) in rows] == list(range(ROWS, (LAST + 1) * ROWS))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_collector_in_good_order(node: Node, number: signal.Signals) -> None:
    collector = node.serve()
    log = (node.folder / "collector.log").read_text()
    assert node.stop(collector, number) == 0
    assert log.splitlines() == [
        f"collector listens on {node.environment['GPUAGENT_COLLECTOR']} and stores in {node.store}",
        f"agents and commands find it with: export GPUAGENT_COLLECTOR={node.environment['GPUAGENT_COLLECTOR']}",
        f"token file: {node.folder}/token",
    ]
    assert (node.folder / "collector.log").read_text() == log
    assert stat.S_IMODE((node.folder / "token").stat().st_mode) == 0o600
    with duckdb.connect(str(node.store), read_only=True) as store:
        assert store.execute("SELECT count(*) FROM runs").fetchall() == [(0,)]


# One call of a function, which nothing interrupts, for minutes.
STUCK = """
SELECT contains(text, repeat('a', 9999) || 'b')
FROM (SELECT string_agg(repeat('a', 10000), '') AS text FROM range(10000))
"""


def test_a_query_that_cannot_be_stopped_does_not_keep_the_collector(node: Node) -> None:
    collector = node.serve()
    with grpc.insecure_channel(node.environment["GPUAGENT_COLLECTOR"]) as channel:
        used = psutil.Process(collector.pid).cpu_times
        before = used().user
        token = read_token(node.folder / "token")
        call = QueryServiceStub(channel).Query(QueryRequest(sql=STUCK), metadata=bearer(token))
        until(lambda: used().user > before + 2, "the function that nothing interrupts")
        call.cancel()
    assert node.stop(collector) == 0
    assert "stop; exiting anyway" in (node.folder / "collector.log").read_text()


@pytest.mark.parametrize("prefix", ["", "ducklake:"])
def test_a_collector_waits_for_a_command_that_reads_the_store(node: Node, prefix: str) -> None:
    name = put_store(f"{prefix}{node.store}")
    with subprocess.Popen([sys.executable, "-c", _READ, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdin
        assert reader.stdout
        assert reader.stdout.readline() == b"reading\n"
        collector = node.start("collector", "serve", "--listen", "127.0.0.1:0", "--store", name, log="collector.log")
        log = node.folder / "collector.log"
        until(lambda: f"in use by process {reader.pid}; " in log.read_text(), "the word that it waits")
        assert collector.poll() is None
        reader.stdin.close()
    until(lambda: "collector listens on" in log.read_text(), "the collector")
    assert node.stop(collector) == 0


_READ = """
import sys
from gpuagent_collector.store import Store
with Store.open(sys.argv[1], read_only=True):
    print("reading", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("forks", [False])  # a collector that has a store is told by its command line
def test_a_store_that_a_collector_has_open_is_read_and_changed_through_it_and_served_by_no_other(node: Node) -> None:
    """As the one inside `gpuagent bench`, whose address nobody knows; that of its pages is not its own."""
    collector = node.serve(options=["--http", "127.0.0.1:0"])
    address = node.environment.pop("GPUAGENT_COLLECTOR")
    store = ("--store", str(node.store))
    read = node.run("collector", "query", "sql", "SELECT 42 AS answer", *store, "--format", "csv")
    assert "42" in read.stdout
    assert f"reading the collector at {address}" in read.stderr
    changed = node.collector("run", "edit", "no-such-run", "--note", "x", *store, code=2)
    assert f"changing the collector at {address}" in changed.stderr
    second = node.collector("serve", "--listen", "127.0.0.1:0", *store, code=1)
    assert f"use by process {collector.pid}; " in second.stderr
    assert len(second.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--listen", "0.0.0.0:0"], 2, "without TLS"),
        (["--listen", "nonsense"], 2, "write HOST:PORT"),
        (["--listen", "127.0.0.1:0", "--store", "no/such/folder/runs.duckdb"], 1, "run: mkdir -p"),
        (["--listen", "127.0.0.1:0", "--store", "ducklake:"], 2, "needs a path"),
        (["--listen", "127.0.0.1:0", "--token-file", "/sys/token"], 1, "cannot make the token file"),
        (["--listen", "127.0.0.1:{used}"], 1, "Address already in use; choose another address with --listen"),
        (["--listen", "127.0.0.1:0", "--http", "127.0.0.1:{used}"], 1, "choose another address with --http"),
        (["--listen", "127.0.0.1:0", "--http", "0.0.0.0:0"], 2, "without TLS"),
        (["--listen", "127.0.0.1:0", "--http", "nonsense"], 2, "write HOST:PORT"),
    ],
)
def test_what_cannot_be_served_is_told_in_one_line(node: Node, options: list[str], code: int, words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = node.collector("serve", *(each.format(used=port) for each in options), code=code)
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not done.stdout
    # A new store beside the right one would be taken for it.
    assert not list(node.folder.glob("**/runs.duckdb*"))


def test_a_second_interrupt_does_not_wait_for_a_query_that_cannot_be_stopped(node: Node) -> None:
    collector = node.serve()
    host, _, port = node.environment["GPUAGENT_COLLECTOR"].partition(":")

    def refuses() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) != 0

    with grpc.insecure_channel(node.environment["GPUAGENT_COLLECTOR"]) as channel:
        queries, metadata = QueryServiceStub(channel), bearer(read_token(node.folder / "token"))
        stuck = queries.Query(QueryRequest(sql=STUCK), metadata=metadata)
        list(queries.Query(QueryRequest(sql="SELECT 1"), metadata=metadata))  # so the one before has come, too
        collector.send_signal(signal.SIGINT)
        until(refuses, "the first interrupt's effect")
        collector.send_signal(signal.SIGINT)
        assert collector.wait() == 130
        stuck.cancel()
