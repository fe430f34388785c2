"""A spool that is carried by hand ends in the store as if its agent had delivered it."""

import sqlite3
from pathlib import Path

import pytest

from gpuagent.delivery.spool import Entry, Spool
from gpuagent.sampling.rows import encode_records
from gpuagent_collector.exchange.spool import SpoolError, import_spool
from gpuagent_collector.ingest.committer import Committer
from gpuagent_collector.ingest.messages import Message, Verdict
from gpuagent_collector.times import utc_now
from gpuagent_common.keys import key
from tests.integration.exchange.conftest import BOTH_KINDS, NameStore, Run
from tests.integration.exchange.sites import content
from tests.support.stores import open_store

pytestmark = pytest.mark.slow

NANO = 1_900_000_000_000_000_000


def records(number: int) -> bytes:
    run: dict[str, int | str] = {"run_id": "r", "time": NANO + number}
    return encode_records(
        {
            "host_samples": [{"time": NANO + number, "cpu_percent": number * 0.1, "memory_used_bytes": number}],
            "run_requests": [run | {"workload": "mnist", "labels": "{}"}] if number == 0 else [],
            "run_states": [run | {"status": {1: "running", 2: "succeeded"}[number]}] if number in (1, 2) else [],
        }
    )


def entry(payload: bytes) -> Entry:
    return Entry(records=payload, droppable=True, from_unix_nano=1, to_unix_nano=2)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    folder = tmp_path / "spool"
    folder.mkdir()
    opened = Spool(folder / "spool.sqlite", node_uuid="a node", limit_bytes=1 << 30)
    opened.append([entry(records(number)) for number in range(500)])
    opened.close()
    return folder / "spool.sqlite"


def take(spool: Path, store_name: str) -> dict[Verdict, int]:
    with open_store(store_name) as store:
        return dict(import_spool(spool, store))


def state(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if not file.name.endswith("-shm")}


@BOTH_KINDS
def test_a_carried_spool_gives_what_delivery_gives(spool: Path, name_store: NameStore) -> None:
    with sqlite3.connect(f"file:{spool}?mode=ro", uri=True) as reading:
        ((session_id,),) = reading.execute("SELECT session_id FROM sessions").fetchall()
    reading.close()
    with open_store(name_store("delivered")) as store, store.connect() as connection:
        committer = Committer(connection, now=utc_now)
        committer.commit(
            [
                Message(session_id=session_id, node_id=key("a node"), number=number + 1, records=records(number))
                for number in range(500)
            ]
        )
    before = state(spool.parent)
    assert take(spool, name_store("carried")) == {Verdict.COMMITTED: 500}
    assert state(spool.parent) == before
    assert take(spool, name_store("carried")) == {Verdict.DUPLICATE: 500}
    delivered, carried = content(name_store("delivered")), content(name_store("carried"))
    assert {name for name in carried if carried[name] != delivered[name]} == {"run_metrics"}
    assert len(carried["host_samples"]) == 500


def test_what_the_agent_wrote_since_is_all_that_is_new(spool: Path, name_store: NameStore) -> None:
    take(spool, name_store("store"))
    opened = Spool(spool, node_uuid="a node", limit_bytes=1 << 30)
    opened.append([entry(records(1000))])
    try:  # the agent goes on: part of its messages is in SQLite's log
        assert take(spool, name_store("store")) == {Verdict.DUPLICATE: 500, Verdict.COMMITTED: 1}
        assert opened.waiting() == 501
    finally:
        opened.close()


def test_a_message_that_does_not_fit_is_told_apart(spool: Path, name_store: NameStore) -> None:
    opened = Spool(spool, node_uuid="a node", limit_bytes=1 << 30)
    opened.append([entry(b"\xff\xff"), entry(records(3))])
    opened.close()
    assert take(spool, name_store("store")) == {Verdict.COMMITTED: 501, Verdict.REJECTED: 1}
    assert len(content(name_store("store"))["gaps"]) == 1


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("PRAGMA user_version = 9", "unknown spool version"),
        ("UPDATE sessions SET session_uuid = 'another'", "does not fit its UUID"),
        ("DELETE FROM sessions", "is damaged"),
        ("UPDATE messages SET number = 'x' WHERE number = 1", "is damaged"),
        ("UPDATE messages SET records = 5 WHERE number = 1", "is damaged"),
        ("DROP TABLE messages", "no such table"),
    ],
)
def test_a_spool_that_is_none_is_refused(spool: Path, name_store: NameStore, damage: str, words: str) -> None:
    with sqlite3.connect(spool) as writing:
        writing.execute(damage)
    writing.close()
    with pytest.raises(SpoolError, match=words):
        take(spool, name_store("store"))
    assert not any(content(name_store("store")).values())


def test_a_truncated_spool_is_an_error_in_words(spool: Path, name_store: NameStore) -> None:
    spool.write_bytes(spool.read_bytes()[:20_000])
    with pytest.raises(SpoolError, match="read the spool"):
        take(spool, name_store("store"))


def test_the_command_takes_the_spool_s_folder_from_a_read_only_place(spool: Path, tmp_path: Path, run: Run) -> None:
    spool.chmod(0o400)
    spool.parent.chmod(0o500)
    code, said = run("import", str(spool.parent), "--store", str(tmp_path / "s.duckdb"))
    spool.parent.chmod(0o700)
    assert (code, "500 messages stored, none were already stored" in said) == (0, True)
