import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, cast

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuagent.sampling.rows import encode_records
from gpuagent_collector.ingest.committer import Committer
from gpuagent_collector.ingest.messages import Message, Verdict
from gpuagent_collector.store import Store
from gpuagent_collector.store.columns import agent_tables
from gpuagent_common.ranges import find_range
from tests.unit.collector_store.conftest import ON_BOTH_KINDS
from tests.unit.collector_store.faults import FaultyConnection, PickyConnection

pytestmark = pytest.mark.slow

NOW = datetime.fromisoformat("2026-03-04 05:06:07")
SESSIONS = count(1)


def committer(connection: duckdb.DuckDBPyConnection | FaultyConnection) -> Committer:
    return Committer(cast("duckdb.DuckDBPyConnection", connection), now=lambda: NOW)


def message(number: int, records: bytes | None = None, *, session_id: int = 1) -> Message:
    row = encode_records({"core_samples": [{"core": number}]})
    return Message(session_id=session_id, node_id=2, number=number, records=row if records is None else records)


def stored(connection: duckdb.DuckDBPyConnection, session_id: int = 1) -> list[int]:
    rows = connection.execute("SELECT core FROM core_samples WHERE session_id = ? ORDER BY 1", [session_id]).fetchall()
    return [core for (core,) in rows]


def verdicts(ingest: Committer, *messages: Message) -> list[Verdict]:
    return [outcome.verdict for outcome in ingest.commit(messages).outcomes]


@ON_BOTH_KINDS
def test_a_message_is_stored_once_however_often_it_is_sent(connection: duckdb.DuckDBPyConnection) -> None:
    ingest = committer(connection)
    assert verdicts(ingest, message(1), message(2), message(1)) == [Verdict.COMMITTED] * 2 + [Verdict.DUPLICATE]
    assert verdicts(committer(connection), message(2), message(3)) == [Verdict.DUPLICATE, Verdict.COMMITTED]
    assert stored(connection) == [1, 2, 3]
    assert ingest.claim([1, 99]) == {1: 2}


def test_rows_are_stamped_with_session_and_node(connection: duckdb.DuckDBPyConnection) -> None:
    committer(connection).commit([message(1), message(1, session_id=-5)])
    rows = connection.execute("SELECT session_id, node_id FROM core_samples ORDER BY 1").fetchall()
    assert rows == [(-5, 2), (1, 2)]


@ON_BOTH_KINDS
def test_a_session_and_a_run_keep_their_first_description(connection: duckdb.DuckDBPyConnection) -> None:
    """An agent that described its session again, otherwise, doubled each of its runs."""
    ingest = committer(connection)
    run = {"run_id": "r", "workload": "mnist"}
    ingest.commit([message(1, encode_records({"sessions": [{"platform": "a"}], "run_requests": [run]}))])
    again = {"sessions": [{"platform": "b"}, {"platform": "c"}], "run_requests": [{**run, "workload": "gan"}] * 2}
    assert verdicts(ingest, message(2, encode_records({**again, "core_samples": [{"core": 2}]}))) == [Verdict.COMMITTED]
    assert connection.execute("SELECT platform, workload FROM runs").fetchall() == [("a", "mnist")]
    assert stored(connection) == [2]
    several = encode_records({"sessions": [{"platform": "d"}, {"platform": "d", "hostname": "alder"}]})
    ingest.commit([message(1, several, session_id=2)])
    assert connection.execute("SELECT count(*) FROM sessions").fetchone() == (2,)


@ON_BOTH_KINDS
def test_a_goodbye_whose_acknowledgement_was_lost_ends_its_session_once(connection: duckdb.DuckDBPyConnection) -> None:
    faulty = FaultyConnection(connection)
    ingest = committer(faulty)
    ingest.commit([message(1, encode_records({"sessions": [{"hostname": "alder"}]}))])
    goodbye = message(2, encode_records({"session_ends": [{"time": 1_900_000_000_000_000_000}]}))
    for fault, verdict in (("before commit", Verdict.COMMITTED), ("after commit", Verdict.DUPLICATE)):
        faulty.faults = [fault]
        with suppress(duckdb.Error):
            ingest.commit([goodbye])
        assert verdicts(ingest, goodbye) == [verdict]
    assert connection.execute("SELECT hostname, epoch(ended_at) FROM nodes").fetchall() == [("alder", 1.9e9)]
    assert connection.execute("SELECT count(*) FROM session_ends").fetchone() == (1,)


@pytest.mark.parametrize(
    ("poison", "reason"),
    [
        (b"\xff\xff", "message 2: not a Records message"),
        (encode_records({"core_samples": [{"core": -1}]}), "message 2: .*a negative core"),
    ],
    ids=["found by the collector", "found by the store"],
)
@ON_BOTH_KINDS
def test_a_poisoned_message_is_rejected_alone_and_leaves_a_gap(
    connection: duckdb.DuckDBPyConnection, poison: bytes, reason: str
) -> None:
    group = [message(1), message(2, poison), message(3), message(1, session_id=8)]
    outcomes = committer(PickyConnection(connection)).commit(group).outcomes
    expected = [Verdict.COMMITTED, Verdict.REJECTED, Verdict.COMMITTED, Verdict.COMMITTED]
    assert [outcome.verdict for outcome in outcomes] == expected
    assert stored(connection) == [1, 3]
    ((*gap, detail),) = connection.execute(
        "SELECT session_id, node_id, time, reason, messages, detail FROM gaps"
    ).fetchall()
    assert gap == [1, 2, NOW, "rejected", 1]
    assert re.match(reason, detail)
    assert verdicts(committer(connection), group[1]) == [Verdict.DUPLICATE]


@ON_BOTH_KINDS
def test_text_that_is_no_json_is_kept_as_a_json_string_and_costs_its_message_nothing(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    broken = [r'{"note": "\ud83d"}', r'["prog", "caf\udce9"]', "{broken", ""]
    events = [{"detail": text} for text in (*broken, '{"a": 1}')]
    records = encode_records({"run_events": events, "run_states": [{"run_id": "r", "status": "failed"}]})
    receipt = committer(connection).commit([message(1, records)])
    assert [outcome.verdict for outcome in receipt.outcomes] == [Verdict.COMMITTED]
    assert receipt.ended_runs == ["r"]
    kept = connection.execute("SELECT detail->>'$', detail->>'a' FROM run_events ORDER BY ALL").fetchall()
    assert sorted(kept) == sorted([*((text, None) for text in broken), ('{"a":1}', "1")])


def test_a_store_that_ran_out_of_memory_takes_the_message_when_there_is_some_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuagent_collector.store.instance._SCRATCH_LIMIT_BYTES", 0)
    rows = [{"core": number, "cpu_percent": number * 0.7310585786300049} for number in range(100_000)]
    big = message(1, encode_records({"core_samples": rows}))
    small = Store.open(str(tmp_path / "runs.duckdb"), memory_bytes=64 * 2**20)
    with small as store, store.connect() as hog, store.connect() as connection:
        ingest = committer(connection)
        hog.execute("CREATE TEMP TABLE hog (x HUGEINT)")
        with suppress(duckdb.Error):
            while True:
                hog.execute("INSERT INTO hog SELECT random() * 1e38 FROM range(100000)")
        for _ in range(2):
            with pytest.raises(duckdb.Error):
                ingest.commit([big])
        hog.execute("DROP TABLE hog")
        assert verdicts(ingest, big, message(2)) == [Verdict.COMMITTED] * 2
        assert connection.execute("SELECT count(*) FROM core_samples").fetchall() == [(100_001,)]


def test_a_poisoned_message_at_the_end_still_advances_the_mark(connection: duckdb.DuckDBPyConnection) -> None:
    committer(connection).commit([message(7, b"\xff\xff")])
    assert committer(connection).claim([1]) == {1: 7}


@contextmanager
def file_size_limit(size_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@ON_BOTH_KINDS
def test_a_group_that_did_not_fit_on_the_disk_is_stored_once_when_there_is_room(
    store: Store, connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    connection.execute("CHECKPOINT")
    # A lake's catalog is larger than the file of the rows.
    largest = min(2**20, max(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file()))
    rows = [{"core": number, "cpu_percent": number * 0.7310585786300049} for number in range(300_000)]
    ingest, big = committer(connection), message(1, encode_records({"core_samples": rows}))
    with file_size_limit(largest), pytest.raises(duckdb.Error):
        ingest.commit([big])
    assert verdicts(ingest, big) == [Verdict.COMMITTED]
    assert connection.execute("SELECT count(*), count(DISTINCT core) FROM core_samples").fetchall() == [(300_000,) * 2]


class Delivery:
    """One session of numbered messages, sent over two streams that each keep their order."""

    def __init__(self, store: Store, last: int) -> None:
        self.session_id = next(SESSIONS)
        self.last = last
        self.acknowledged: set[int] = set()
        self._store = store
        self._queue: list[Message] = []
        self._start()

    def _start(self) -> None:
        self.connection = self._store.connect()
        self._faulty = FaultyConnection(self.connection)
        self._ingest = committer(self._faulty)
        self._queue.clear()
        self._next = dict.fromkeys(("one", "other"), self._mark() + 1)

    def _mark(self) -> int:
        return self._ingest.claim([self.session_id]).get(self.session_id, 0)

    def send(self, stream: str) -> None:
        if self._next[stream] <= self.last:
            self._queue.append(message(self._next[stream], session_id=self.session_id))
            self._next[stream] += 1

    def reconnect(self, stream: str, forgotten: int) -> None:
        """Begin again, at a message that was acknowledged already when the agent forgot some acknowledgements."""
        self._next[stream] = max(1, self._mark() + 1 - forgotten)

    def commit(self, fault: str | None) -> None:
        self._faulty.faults = [fault] if fault else []
        if not self._queue:
            return
        with suppress(duckdb.IOException):
            outcomes = self._ingest.commit(self._queue).outcomes
            assert Verdict.REJECTED not in {outcome.verdict for outcome in outcomes}
            self.acknowledged |= {each.number for each in self._queue}
            self._queue.clear()

    def crash(self) -> None:
        self.connection.close()
        self._start()

    def finish(self) -> None:
        for _ in range(self.last):
            self.send("one")
        self.commit(None)


STREAMS = st.sampled_from(["one", "other"])
FAULTS = st.sampled_from(["before commit", "after commit"]) | st.none()
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), STREAMS),
        st.tuples(st.just("send"), STREAMS),
        st.tuples(st.just("reconnect"), STREAMS, st.integers(0, 5)),
        st.tuples(st.just("commit"), FAULTS),
        st.tuples(st.just("crash")),
    ),
    max_size=40,
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
@ON_BOTH_KINDS
def test_whatever_fails_in_whatever_order_every_message_is_stored_exactly_once(
    store: Store, steps: list[tuple[Any, ...]]
) -> None:
    delivery = Delivery(store, last=12)
    for name, *arguments in steps:
        getattr(delivery, name)(*arguments)
        assert delivery.acknowledged <= set(stored(delivery.connection, delivery.session_id))
    delivery.finish()
    assert stored(delivery.connection, delivery.session_id) == list(range(1, delivery.last + 1))
    delivery.connection.close()


@ON_BOTH_KINDS
def test_impossible_values_of_any_agent_are_null_and_counted_by_session(connection: duckdb.DuckDBPyConnection) -> None:
    good = {"utilization_percent": 50.0, "memory_used_bytes": 7, "memory_total_bytes": 8, "temperature_celsius": -5.0}
    bad = [
        {**good, "utilization_percent": float(2**32 - 1)},
        {**good, "memory_used_bytes": 9},
        {**good, "power_watts": -1.0},
        {**good, "memory_total_bytes": 2**63 - 1},
        {**good, "utilization_percent": float("-inf")},
        {**good, "temperature_celsius": 201.0, "throttle_reasons": -1},
    ]
    # Another writer than ours sends them, so its encoder does not matter: only these bytes do.
    rows = [{"time": 10**18 + second * 10**9, **row} for second, row in enumerate([good, *bad, good])]
    records = encode_records({"gpu_samples": rows})
    fine = encode_records({"gpu_samples": [{"time": 10**18, **good}]})
    committer(connection).commit([message(1, records), message(1, fine, session_id=5)])
    columns = "utilization_percent, memory_used_bytes, memory_total_bytes, temperature_celsius, power_watts"
    found = connection.execute(f"SELECT {columns} FROM gpu_samples WHERE session_id = 1 ORDER BY time").fetchall()
    usual = (50.0, 7, 8, -5.0, None)
    assert found == [
        usual,
        (None, 7, 8, -5.0, None),
        (50.0, None, 8, -5.0, None),
        usual,
        (50.0, 7, None, -5.0, None),
        (None, 7, 8, -5.0, None),
        (50.0, 7, 8, None, None),
        usual,
    ]
    counts = connection.execute(
        "SELECT session_id, quantity, readings, source FROM impossible_readings ORDER BY quantity"
    ).fetchall()
    assert counts == [
        (1, "gpu_samples.memory_total_bytes", 1, None),
        (1, "gpu_samples.memory_used_bytes", 1, None),
        (1, "gpu_samples.power_watts", 1, None),
        (1, "gpu_samples.temperature_celsius", 1, None),
        (1, "gpu_samples.throttle_reasons", 1, None),
        (1, "gpu_samples.utilization_percent", 1, None),
    ]


def test_every_number_that_agents_send_has_limits_or_is_an_identity(connection: duckdb.DuckDBPyConnection) -> None:
    numbers = {"BIGINT", "DOUBLE"}
    without = {
        name
        for table, columns in agent_tables(connection).items()
        for name, kind in columns.items()
        if kind in numbers and find_range(table, name) is None
    }
    identities = {name for name in without if name.endswith("_id")}
    assert without - identities == {
        *("core", "device_index", "exit_code", "number", "numa_node", "pid", "rank", "step"),
        "value",  # of a result: any number
    }
