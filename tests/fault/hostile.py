"""`python -m tests.fault.hostile`: statements that seek to end a collector, or to keep others from it.

The collector has 1 GiB of memory; the kernel ends it if it takes more. Viewers send the statements on more streams
than the collector has places, with three tokens; meanwhile another viewer asks for one row, and an agent delivers.
Needs root.
"""

import argparse
import asyncio
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import grpc

from gpuagent.sampling.rows import encode_records
from gpuagent_collector.ingest.checks import MAX_TEXT_BYTES
from gpuagent_collector.query.remote import RemoteReader
from gpuagent_common.connection import bearer
from gpuagent_common.errors import GpuAgentError
from gpuagent_proto.v1 import query_service_pb2 as pb
from gpuagent_proto.v1 import query_service_pb2_grpc as pb_grpc
from tests.fault.attacks import Agent as Accomplice
from tests.integration.server.agents import Agent
from tests.support.servers import BIN, Node, until

MEMORY_BYTES = 2**30

# The root of a hierarchy of control groups, and the file of a group's limit, of both kinds.
_GROUPS = (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max"))

# More streams than the collector has places, from as many tokens: the last sees only a part of the store.
_STREAMS = 17
_TOKENS = 3

# As many as DuckDB evaluates at once would do more harm, but take longer to store.
_LONG_TEXTS = 200
_LONG = f'"{"x" * (MAX_TEXT_BYTES - 2)}"'

_WIDE = "x" * 90_000
_BOUNDED = "repeat(substr('abcdefghijklmnop', (range % 2)::INT, 16), 1900)"


def nested(start: str, step: str, times: int) -> str:
    """Return `start` within `step`, which has a {}, that many times."""
    for _ in range(times):
        start = step.replace("{}", start)
    return start


# What each does without a bound: takes memory, or obeys no interrupt.
ATTACKS: dict[str, str] = {
    "reduce": "SELECT length(list_reduce(range(32), lambda a, b: a || a, 'x')) FROM range(2048)",
    "replace": nested("'aaaa'", "replace({}, 'a', 'aaaaaaaaaa')", 9).join(("SELECT length(", ")")),
    "flatten": "SELECT len(flatten(list_transform(range(10000), lambda x: range(10000)))) FROM range(100)",
    "regexp": nested("'aaaa'", "regexp_replace({}, 'a', 'aaaaaaaa', 'g')", 11).join(("SELECT length(", ")")),
    "split": f"SELECT len(string_split(replace(repeat('a', 10000), 'a', '{'b' * 9000}'), '')) FROM range(2048)",
    "repeat": "SELECT repeat(repeat(repeat(run_id, 9999), 9999), 9999) FROM runs, range(99)",
    "pad": "SELECT sum(length(lpad('x', 10000, 'y') || rpad('x', 10000, 'y'))) FROM range(9999999)",
    "columns": f"WITH t AS (SELECT '{_WIDE}' AS s) SELECT {', '.join(['s'] * 900)} FROM t, range(99999)",
    "stars": nested("SELECT 1 AS a", "SELECT *, * FROM ({})", 22),
    "structs": nested("SELECT 'x' AS a", "SELECT row(a, a) AS a FROM ({})", 22),
    "doubling": nested("SELECT 'xxxxxxxx' AS a", "SELECT a || a AS a FROM ({})", 40),
    "recursion": "WITH RECURSIVE t AS (SELECT 'x' AS a UNION ALL SELECT a || a FROM t) SELECT count(a) FROM t",
    "each column": f"SELECT 1 FROM (SELECT {', '.join(['range::VARCHAR'] * 99)}"
    " FROM range(4096)) WHERE length(repeat(COLUMNS(*), 900)) > 0",
    "names": f"SELECT length(concat({', '.join(['s'] * 400)}))"
    f" FROM (SELECT {{'{'n' * 3000}': range}} AS s FROM range(9999))",
    "bars": f"SELECT length(concat({', '.join(['bar(range, 0, 9, 1000)'] * 400)})) FROM range(9999)",
    "quotes": nested("'\"'", "to_json({}::VARCHAR)", 40).join(("SELECT length(", "::VARCHAR)")),
    "rows": nested("SELECT 'x' AS a", "SELECT t AS a, t AS b FROM ({}) AS t", 40),
    "gathered": "SELECT list(l) FROM (SELECT list(range) AS l FROM range(999999)), range(9999999)",
    "texts": "SELECT string_agg(repeat('x', 100), '' ORDER BY range DESC) FROM range(99999999)",
    "states": "SELECT median(range), mode(range), entropy(range) FROM range(99999999999)",
    "distinct": "SELECT count(DISTINCT range) OVER (ORDER BY range ROWS 99999 PRECEDING) FROM range(9999999)",
    "frames": "SELECT mad(range) OVER (ORDER BY range ROWS 99999 PRECEDING) FROM range(9999999)",
    "sample": "SELECT * FROM range(99999999999) USING SAMPLE 99999999 ROWS",
    "sort": "SELECT hash(range) AS h FROM range(99999999999) ORDER BY h",
    "join": "SELECT count(*) FROM range(999999999) a, range(999999999) b WHERE hash(a.range) = hash(b.range + 1)",
    "joins": f"SELECT count(*) FROM runs r0 {' '.join(f'JOIN runs r{i} USING (run_id)' for i in range(1, 300))}",
    "views": f"SELECT count(*) FROM runs r0 {' '.join(f'JOIN runs r{i} USING (run_id)' for i in range(1, 47))}",
    "cube": f"SELECT count(*) FROM range(9999999) GROUP BY CUBE ({', '.join(f'range % {i}' for i in range(2, 16))})",
    "like": f"SELECT count(*) FROM range(9999) WHERE repeat('a', 900) || range LIKE '{'%_a' * 9}b'",
    "glob": f"SELECT count(*) FROM range(9999) WHERE repeat('a', 900) || range GLOB '{'*a' * 9}b'",
    "pivot": "PIVOT range(999999) ON range IN (1, 2, 3) USING list(range)",
    "digits": "SELECT (repeat('9', 9999) || range)::BIGNUM FROM range(99999)",
    "paths": "SELECT json_extract(repeat('[', 900) || repeat(']', 900), '$**') FROM range(99999)",
    "scan": "SELECT count(*) FROM host_samples WHERE md5(node_id::VARCHAR || session_id) = 'x'",
    # Nearly all that a viewer may make of a row: as an answer, within a step, sorted, and kept by an aggregate.
    "answers": f"SELECT {_BOUNDED} AS a FROM range(99999999)",
    "steps": f"SELECT max(length({_BOUNDED})), max(length({_BOUNDED})) FROM range(99999999)",
    "sorted": f"SELECT {_BOUNDED} AS a FROM range(99999999) ORDER BY hash(range)",
    "counted": f"SELECT count(DISTINCT {_BOUNDED} || range) FROM range(99999999)",
    "listed": f"SELECT list({_BOUNDED}) FROM range(99999999)",
    # What aggregates keep without DuckDB counting it, of few and of many groups.
    "greatest": "SELECT count(m) FROM (SELECT max(md5(range::VARCHAR) || repeat('x', 999)) AS m FROM range(99999999)"
    " GROUP BY range)",
    "latest": "SELECT count(m) FROM (SELECT last([range::VARCHAR, repeat('x', 999)]) AS m FROM range(99999999)"
    " GROUP BY range)",
    "quantiles": "SELECT count(m) FROM (SELECT approx_quantile(range, 0.5) AS m FROM range(99999999) GROUP BY range)",
    "modes": "SELECT count(m) FROM (SELECT mode(hash(range)) AS m FROM range(99999999) GROUP BY range % 9)",
    "windows": "SELECT max(hash(range) || repeat('x', 999)) OVER (PARTITION BY range) AS m FROM range(99999999)",
    "joined": "SELECT l FROM (SELECT string_agg(md5(range::VARCHAR)) AS l FROM range(999999)), range(9999999)",
    "medians": "SELECT median(a.range) FROM range(99999) a, range(99999) b",
    # Of long texts that an agent has stored for it.
    "stored": f"SELECT max(length(concat({', '.join(['detail'] * 50)}))) FROM run_events, range(99999)",
    "columns of stored": f"SELECT {', '.join(['detail'] * 99)} FROM run_events, range(99999)",
    "drawn": "SELECT repeat('x', 9999) || range FROM range(99999999) TABLESAMPLE reservoir(50%)",
    "cut message": "SELECT json(repeat('é', 401)), json(repeat('x', 9999) || repeat('é', 9999)) FROM range(99999999)",
    "wide": "SELECT range, hash(range), md5(range::VARCHAR) FROM range(99999999999)",
}


@dataclass(slots=True, kw_only=True)
class Waits:
    """What others had to wait for, in seconds, and what went wrong for them."""

    asked: list[float] = field(default_factory=list)
    acknowledged: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    # The collector's peak.
    resident_bytes: int = 0
    # How the attacks ended, by code.
    outcomes: Counter[str] = field(default_factory=Counter)


@contextmanager
def limited_group() -> Iterator[Path | None]:
    """Make a control group with MEMORY_BYTES; yield None where that is impossible."""
    group = next(filter(None, (_make_group(Path(root), name) for root, name in _GROUPS)), None)
    try:
        yield group
    finally:
        if group is not None:
            processes = group / "cgroup.procs"
            until(lambda: not processes.read_text(), "the end of the group's processes")
            group.rmdir()


def _make_group(root: Path, limit: str) -> Path | None:
    group = root / f"gpuagent-{uuid.uuid4().hex}"
    try:
        group.mkdir()
    except OSError:
        return None
    try:
        (group / limit).write_text(str(MEMORY_BYTES))
    except OSError:
        group.rmdir()
        return None
    return group


@contextmanager
def serving(node: Node, group: Path, waits: Waits) -> Iterator[None]:
    """Run a collector in the group, which must be the same process to the end."""
    enter = f'echo $$ > {group}/cgroup.procs; exec "$0" "$@"'
    process = node.serve(program=("/bin/sh", "-c", enter, str(BIN / "collector")))
    yield
    assert process.poll() is None, f"the collector was ended, with {process.poll()}"
    status = Path(f"/proc/{process.pid}/status").read_text()
    waits.resident_bytes = int(status.partition("VmHWM:")[2].split()[0]) * 1024
    node.stop(process)


def create_token(node: Node, scope: str, name: str, *options: str) -> str:
    """Return a new token."""
    options += ("--any-node",) if scope == "agent" else ()
    return node.collector("tokens", "create", scope, "--name", name, *options).stdout.split()[0]


class Attackers:
    """Streams of some tokens that send one statement after the other, until they are stopped."""

    def __init__(self, address: str, tokens: Sequence[str], waits: Waits, attacks: Sequence[str]) -> None:
        self._address, self._tokens, self._waits, self._attacks = address, tokens, waits, attacks
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._attack, args=(place,)) for place in range(_STREAMS)]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _attack(self, place: int) -> None:
        metadata = bearer(self._tokens[place % len(self._tokens)])
        with grpc.insecure_channel(self._address) as channel:
            stub = pb_grpc.QueryServiceStub(channel)
            while not self._ended.wait(0.05):
                place += 1
                request = pb.QueryRequest(sql=self._attacks[place % len(self._attacks)], timeout_seconds=1 + place % 6)
                try:
                    for _ in stub.Query(request, metadata=metadata, timeout=20):
                        pass
                    outcome = "answered"
                except grpc.RpcError as error:
                    outcome = error.code().name.lower()
                self._waits.outcomes[outcome] += 1


def ask(address: str, token: str, waits: Waits, ended: threading.Event) -> None:
    """Ask for one row again and again, as another viewer."""
    with closing(RemoteReader(address, token)) as reader:
        while not ended.wait(0.1):
            started = time.monotonic()
            try:
                reader.sql("SELECT 1")
                waits.asked.append(time.monotonic() - started)
            except GpuAgentError as error:
                waits.failures.append(str(error))


def store_long_texts(address: str, token: str) -> None:
    """Store texts as long as they may be, as an agent that helps the attackers."""
    agent = Accomplice(address, token, "accomplice")
    agent.greet()
    for run in range(_LONG_TEXTS):
        agent.deliver(encode_records({"run_events": [{"run_id": f"long-{run}", "time": 1, "detail": _LONG}]}))
    agent.await_acknowledged()
    agent.close()


async def deliver(address: str, token: str, waits: Waits, ended: threading.Event) -> None:
    """Deliver samples again and again, as an agent."""
    async with grpc.aio.insecure_channel(address) as channel:
        agent = Agent(channel=channel, token=token)
        await agent.connect()
        number = 0
        while not ended.is_set():
            number += 1
            started = time.monotonic()
            await agent.send(number)
            await agent.acknowledged(number)
            waits.acknowledged.append(time.monotonic() - started)
            await asyncio.sleep(0.1)


def attack(folder: Path, group: Path, seconds: float, attacks: Sequence[str], scope: str = "viewer") -> Waits:
    """Attack a collector in the group for this time, with a token of this scope; return how others fared."""
    waits, ended = Waits(), threading.Event()
    with Node(folder) as node, serving(node, group, waits):
        address = node.environment["GPUAGENT_COLLECTOR"]
        hostile = [create_token(node, scope, f"hostile-{place}") for place in range(_TOKENS - 1)]
        hostile.append(create_token(node, scope, "limited", *(("--platform", "none") if scope == "viewer" else ())))
        other = create_token(node, "viewer", "other")
        agent = create_token(node, "agent", "agent")
        store_long_texts(address, agent)
        others = [
            threading.Thread(target=ask, args=(address, other, waits, ended)),
            threading.Thread(target=lambda: asyncio.run(deliver(address, agent, waits, ended))),
        ]
        for thread in others:
            thread.start()
        with Attackers(address, hostile, waits, attacks):
            time.sleep(seconds)
        ended.set()
        for thread in others:
            thread.join()
    return waits


def main() -> None:
    """Print the longest and the usual waits of others."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--scope", default="viewer")
    parser.add_argument("attacks", nargs="*", default=list(ATTACKS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, limited_group() as group:
        assert group, "no control group can be made"
        waits = attack(Path(folder), group, options.seconds, [ATTACKS[name] for name in options.attacks], options.scope)
    for what, times in (("asked", waits.asked), ("acknowledged", waits.acknowledged)):
        print(f"{what}: {len(times)} times, median {median(times):.3f} s, longest {max(times):.3f} s")
    print(f"attacks {dict(waits.outcomes)}, failures {waits.failures[:3]}")
    is_served = waits.asked and waits.acknowledged and not waits.failures and "unavailable" not in waits.outcomes
    verdict = "others were served by one process" if is_served else "NOT SERVED"
    print(f"{verdict}, of at most {waits.resident_bytes / 2**20:,.0f} MiB")
    sys.exit(not is_served)


if __name__ == "__main__":
    main()
