"""What one message may cost: bounds of what it names, and work in sets, so that its bytes limit the writer's time."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

import duckdb
import pyarrow as pa
import pytest

from gpuagent.sampling.rows import encode_records
from gpuagent_collector.errors import RejectedRecordsError
from gpuagent_collector.ingest import committer, decode, owners
from gpuagent_collector.ingest.committer import Committer
from gpuagent_collector.ingest.decode import MAX_COLUMNS, MAX_RUNS, MAX_TABLES, Decoder, Piece
from gpuagent_collector.ingest.layouts import count_parts
from gpuagent_collector.ingest.messages import Message, Outcome, Verdict
from gpuagent_collector.ingest.presence import Presence, declare_lost
from gpuagent_collector.store.columns import LongestTexts, agent_tables
from gpuagent_common.keys import invited_run
from gpuagent_proto.v1.records_pb2 import Column, Records, Table, Texts

NOW = datetime.fromisoformat("2026-01-01")

Tables = Mapping[str, Sequence[dict[str, Any]]]


class CountingConnection:
    """A real connection that counts its statements."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self.statements = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, *arguments: Any) -> Any:
        self.statements += 1
        return self._connection.execute(*arguments)

    def executemany(self, sql: str, rows: Sequence[Any]) -> Any:
        self.statements += len(rows)
        return self._connection.executemany(sql, rows)


@pytest.fixture
def counting(connection: duckdb.DuckDBPyConnection) -> CountingConnection:
    return CountingConnection(connection)


@pytest.fixture
def commit(counting: CountingConnection) -> Callable[..., Sequence[Outcome]]:
    """Commit messages as one group, all of one node unless other nodes are named; return their outcomes."""
    ours = Committer(cast("duckdb.DuckDBPyConnection", counting), now=lambda: NOW)
    numbers: Iterator[int] = iter(range(1, 10_000))

    def commit(*messages: Tables | bytes, nodes: Sequence[int] | None = None) -> Sequence[Outcome]:
        made = [
            Message(
                session_id=node,
                node_id=node,
                number=next(numbers),
                records=each if isinstance(each, bytes) else encode_records(cast("Any", each)),
            )
            for each, node in zip(messages, nodes or [2] * len(messages), strict=True)
        ]
        return ours.commit(made).outcomes

    return commit


def verdicts(outcomes: Sequence[Outcome]) -> list[Verdict]:
    return [outcome.verdict for outcome in outcomes]


def requests(count: int, tag: str = "") -> Tables:
    """Return requests of runs of two nodes, each with its invitation."""
    invitations = [f"{tag}{number}" for number in range(count)]
    return {
        "run_requests": [
            {"run_id": invited_run("mnist", each), "nodes": 2, "invitation": each, "time": 1} for each in invitations
        ]
    }


def states(*statuses: str, tag: str = "run") -> Tables:
    return {
        "run_states": [
            {"run_id": f"{tag}-{number}", "status": status, "time": number} for number, status in enumerate(statuses)
        ]
    }


def test_a_group_asks_the_store_as_often_for_many_runs_as_for_one(
    commit: Callable[..., Sequence[Outcome]], counting: CountingConnection
) -> None:
    counts = []
    for number, runs in enumerate((1, 40)):
        before = counting.statements
        assert verdicts(commit(requests(runs, f"{number}a"), requests(runs, f"{number}b"))) == [Verdict.COMMITTED] * 2
        counts.append(counting.statements - before)
    # The second node joins all of them at once as well.
    for number, runs in enumerate((1, 40)):
        before = counting.statements
        assert verdicts(commit(requests(runs, f"{number}a"), nodes=[3])) == [Verdict.COMMITTED]
        counts.append(counting.statements - before)
    assert counts[0] == counts[1]
    assert counts[2] == counts[3]


def test_runs_are_lost_in_one_statement(counting: CountingConnection) -> None:
    counts = []
    for runs in (1, 50):
        for number in range(runs):
            counting._connection.execute(
                "INSERT INTO run_states (session_id, node_id, time, run_id, status) VALUES (1, 2, ?, ?, 'running')",
                [NOW, f"{runs}-{number}"],
            )
        before = counting.statements
        later = NOW + timedelta(hours=1)
        connection = cast("duckdb.DuckDBPyConnection", counting)
        lost = declare_lost(connection, Presence(lambda: NOW), now=later, after=timedelta(minutes=2))
        assert len(lost) == runs
        counts.append(counting.statements - before)
    assert counts[0] == counts[1]


def test_runs_that_are_no_longer_in_memory_are_looked_up_again(
    commit: Callable[..., Sequence[Outcome]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "_KEPT_RUNS", 2)
    for number in range(5):
        commit({"run_requests": [{"run_id": f"run-{number}", "time": 1}]})
    stolen = [{"run_states": [{"run_id": f"run-{number}", "status": "failed", "time": 2}]} for number in range(5)]
    assert verdicts(commit(*stolen, nodes=[3] * 5)) == [Verdict.REJECTED] * 5
    assert verdicts(commit(*stolen)) == [Verdict.COMMITTED] * 5


def test_a_message_that_is_rejected_takes_no_run(commit: Callable[..., Sequence[Outcome]]) -> None:
    commit({"run_requests": [{"run_id": "theirs", "time": 1}]}, nodes=[3])
    taken: Tables = {"run_requests": [{"run_id": "free", "time": 1}, {"run_id": "theirs", "time": 1}]}
    assert verdicts(commit(taken)) == [Verdict.REJECTED]
    assert verdicts(commit({"run_requests": [{"run_id": "free", "time": 1}]}, nodes=[4])) == [Verdict.COMMITTED]


def test_a_node_has_only_so_many_open_runs_and_those_that_end_make_room(
    commit: Callable[..., Sequence[Outcome]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "MAX_OPEN_RUNS", 4)
    first: Tables = {"run_requests": [{"run_id": f"run-{number}", "time": 1} for number in range(3)]}
    more: Tables = {"run_requests": [{"run_id": f"more-{number}", "time": 1} for number in range(2)]}
    assert verdicts(commit(first, states("queued", "running", "running"))) == [Verdict.COMMITTED] * 2
    assert verdicts(commit(more)) == [Verdict.REJECTED]
    # Runs that nobody asked for count as well, and other nodes have their own.
    assert verdicts(commit(states("queued", "queued", tag="stray"))) == [Verdict.REJECTED]
    assert verdicts(commit({"run_requests": [{"run_id": "other", "time": 1}]}, nodes=[3])) == [Verdict.COMMITTED]
    assert verdicts(commit(states("failed", "succeeded"))) == [Verdict.COMMITTED]
    assert verdicts(commit(more)) == [Verdict.COMMITTED]


DECODER = Decoder({"readings": {"count": "BIGINT"}, "states": {"run_id": "VARCHAR"}})


def of_runs(*counts: int) -> Records:
    tables = []
    for place, count in enumerate(counts):
        texts = [f"{place}-{number:012}".encode() for number in range(count)]
        ends = [0]
        for text in texts:
            ends.append(ends[-1] + len(text))
        offsets = b"".join(end.to_bytes(4, "little") for end in ends)
        column = Column(name="run_id", texts=Texts(offsets=offsets, utf8=b"".join(texts)))
        tables.append(Table(name="states", rows=count, columns=[column]))
    return Records(tables=tables)


@pytest.mark.parametrize(
    ("records", "noun"),
    [
        (Records(tables=[Table(name="readings")] * (MAX_TABLES + 1)), "tables"),
        (Records(tables=[Table(name="x", columns=[Column(name="x")] * (MAX_COLUMNS // 2 + 1))] * 2), "columns"),
        (Records(tables=[Table(name="x", rows=1500)]), "rows"),
        (of_runs(MAX_RUNS + 1), "runs"),
        (of_runs(MAX_RUNS // 2 + 1, MAX_RUNS // 2 + 1), "runs"),
    ],
)
def test_a_message_names_only_so_much(records: Records, noun: str) -> None:
    with pytest.raises(RejectedRecordsError, match=f"{noun} in one message; the limit is"):
        DECODER.decode(records.SerializeToString(), session_id=1, node_id=2)
    assert DECODER.decode(of_runs(MAX_RUNS).SerializeToString(), session_id=1, node_id=2).run_ids


@pytest.mark.parametrize("part", [b"\x0a\0", b"\x50\0", b"\x0a\2\x1a\0"])
def test_a_long_message_of_tiny_parts_is_rejected_before_it_is_parsed(
    part: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "records_pb2", None)
    with pytest.raises(RejectedRecordsError, match="in one message"):
        DECODER.decode(part * (decode._UNCOUNTED_BYTES // 2 + 1), session_id=1, node_id=2)


def test_the_parts_of_a_message_are_counted_along_a_path() -> None:
    column = Column(name="count", integers=bytes(8), validity=b"\1")
    records = Records(tables=[Table(name="readings", rows=1, columns=[column, column])] * 3)
    content = records.SerializeToString()
    assert count_parts(content, (), 99) == 3
    assert count_parts(content, (1,), 99) == 3 * (1 + 4)
    assert count_parts(content, (1, 3), 99) == 3 * (1 + 4 + 2 * 3)
    assert count_parts(content, (1, 3), 5) == 6
    for cut in (b"\x0a", b"\xff" * 11, b"\x0b"):
        with pytest.raises(ValueError, match=r"field|end"):
            count_parts(cut, (1,), 99)


def test_messages_with_different_columns_are_joined_in_parts_of_bounded_memory(
    commit: Callable[..., Sequence[Outcome]], connection: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined: list[int] = []

    def join(part: Sequence[Piece]) -> pa.Table:
        joined.append(len(part))
        return decode.join(part)

    monkeypatch.setattr(committer, "join", join)
    monkeypatch.setattr(decode, "_JOINED_BYTES", 100 * 8 * 12)
    known = agent_tables(connection)["gpu_samples"]
    columns = [name for name, data_type in known.items() if data_type == "DOUBLE"][:8]
    messages: list[Tables] = [{"gpu_samples": [{name: 1.0}] * 50} for name in columns]
    assert verdicts(commit(*messages)) == [Verdict.COMMITTED] * 8
    assert sum(joined) == 8
    assert max(joined) <= 3
    counts = ", ".join(f"count({name})" for name in columns)
    assert connection.execute(f"SELECT count(*), {counts} FROM gpu_samples").fetchall() == [(400, *[50] * 8)]


def request(**values: Any) -> Tables:
    return {"run_requests": [{"run_id": "r", "time": 1, **values}]}


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        *(
            (request(parameters=text), "an object of")
            for text in ("nonsense", "[1]", "null", '{"a": [1]}', '{"a": NaN}')
        ),
        *((request(parameters=text), "an object of") for text in ('{"a": 1e999}', '"x"', DEEP, '{"a": "\\ud800"}')),
        (request(parameters=f'{{"a": {"9" * 5000}}}'), "an object of"),
        *((request(labels=text), "texts") for text in ("[1,2]", '{"a": 1}', '{"a": null}')),
        *((request(command=text), "a list of texts") for text in ("{}", '["a", 1]', '"ls"')),
        ({"sessions": [{"started_at": 1, "labels": "7"}]}, "texts"),
        ({"sessions": [{"started_at": 1, "cpu_model": "x" * 1001}]}, "longer than 1,000"),
        ({"session_devices": [{"name": "x" * 1001}]}, "longer than 1,000"),
        ({"run_states": [{"run_id": "x" * 1001, "status": "queued", "time": 1}]}, "longer than 1,000"),
        (
            {"run_states": [{"run_id": "r", "status": "failed", "time": 1, "reason": "x" * 262_145}]},
            "longer than 262,144",
        ),
    ],
)
def test_rows_that_readers_could_not_read_are_rejected(
    commit: Callable[..., Sequence[Outcome]], rows: Tables, words: str
) -> None:
    (outcome,) = commit(rows)
    assert outcome.verdict is Verdict.REJECTED
    assert words in (outcome.reason or "")
    assert len(outcome.reason or "") < 200


def test_texts_longer_than_usual_are_known_before_they_are_stored(connection: duckdb.DuckDBPyConnection) -> None:
    longest = LongestTexts()
    writer = Committer(connection, now=lambda: NOW, longest_texts=longest)
    rows: Tables = {
        "run_events": [{"run_id": "r", "time": 1, "event": "output", "detail": size * "é"} for size in (3, 300)]
    }
    sent = Message(session_id=2, node_id=2, number=1, records=encode_records(cast("Any", rows)))
    assert verdicts(writer.commit([sent]).outcomes) == [Verdict.COMMITTED]
    assert longest.all() == {"detail": 600}


def test_rows_as_agents_send_them_are_stored(commit: Callable[..., Sequence[Outcome]]) -> None:
    parameters = {"batch-size": 64, "lr": 0.1, "data": None, "compile": True, "text": "\u00e9\x00"}
    rows = request(parameters=json.dumps(parameters), labels='{"team": "vision"}', command='["python", "a.py"]')
    event = {"run_id": "r", "time": 1, "event": "metric", "detail": json.dumps({"value": {"nested": [1]}})}
    assert verdicts(commit({**rows, "run_events": [event]})) == [Verdict.COMMITTED]
