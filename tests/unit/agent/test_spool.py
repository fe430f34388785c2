import asyncio
import logging
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuagent.clock import SystemClock
from gpuagent.delivery import spool_file
from gpuagent.delivery.pipeline import Pipeline
from gpuagent.delivery.spool import Entry, Message, Spool, count_messages
from gpuagent.delivery.spool_file import SpoolError
from gpuagent.event_loop import EventLoop
from gpuagent.runs.events import Tailed
from gpuagent.sampling.rows import RecordBuffer
from gpuagent_proto.v1.records_pb2 import Records
from tests.support.clocks import SteppedClock

pytestmark = pytest.mark.slow

NODE = "node-1"
MANY = 1000


def entry(text: str, *, droppable: bool = True, at: int = 0, size: int = 0) -> Entry:
    return Entry(records=text.encode().ljust(size, b"."), droppable=droppable, from_unix_nano=at, to_unix_nano=at + 1)


def texts(messages: list[Message]) -> list[str]:
    return [message.records.decode(errors="replace").rstrip(".") for message in messages]


def gaps_of(messages: list[Message]) -> list[Records]:
    return [Records.FromString(message.records) for message in messages if b"spool_full" in message.records]


def opened(file: Path, limit_bytes: int = 1 << 20) -> Spool:
    return Spool(file, node_uuid=NODE, limit_bytes=limit_bytes)


def execute(file: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(file)) as disk, disk:
        return disk.execute(sql).fetchall()


def flip_a_name(file: Path) -> None:
    opened(file).close()
    file.write_bytes(file.read_bytes().replace(b"to_unix_nano INTEGER", b"to_unix_nanp INTEGER"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "spool.sqlite"


@pytest.fixture
def spool(file: Path) -> Iterator[Spool]:
    spool = opened(file)
    yield spool
    spool.close()


def test_messages_are_numbered_from_one_and_come_in_order(spool: Spool) -> None:
    spool.append([entry("a"), entry("b")])
    spool.append([entry("c")])
    messages = spool.messages_after(0, limit=MANY)
    assert [(message.number, message.records) for message in messages] == [(1, b"a"), (2, b"b"), (3, b"c")]
    assert texts(spool.messages_after(messages[0].position, limit=1)) == ["b"]


def test_new_messages_follow_the_acknowledged_ones(spool: Spool) -> None:
    sent_position = 0
    for number in range(1, 6):
        spool.append([entry(f"m{number}")])
        (message,) = spool.messages_after(sent_position, limit=MANY)
        assert (message.number, message.records.decode()) == (number, f"m{number}")
        sent_position = message.position
        spool.acknowledge({spool.session.session_id: number})


def test_messages_behind_many_acknowledged_ones_are_found(spool: Spool) -> None:
    spool.append([entry(str(number)) for number in range(200)])
    spool.acknowledge({spool.session.session_id: 100})
    assert texts(spool.messages_after(0, limit=64)) == [str(number) for number in range(100, 128)]


def test_a_later_process_has_its_own_session_and_keeps_earlier_messages(file: Path) -> None:
    first = opened(file)
    first.append([entry("a")])
    first.close()
    second = opened(file)
    second.append([entry("b")])
    held = {message.session_id: message.number for message in second.messages_after(0, limit=MANY)}
    both = (first.session, second.session)
    assert held == {session.session_id: 1 for session in both}
    assert [session.session_uuid for session in second.sessions()] == [session.session_uuid for session in both]
    second.close()


def test_a_spool_restored_from_a_copy_hides_nothing_new_behind_an_old_number(file: Path, tmp_path: Path) -> None:
    original = opened(file)
    original.append([entry("old")])
    shutil.copytree(tmp_path, tmp_path / "copy")
    original.append([entry("only in the original")])
    committed = {(message.session_id, message.number) for message in original.messages_after(0, limit=MANY)}
    original.close()
    restored = opened(tmp_path / "copy" / "spool.sqlite")
    restored.append([entry("new")])
    held = restored.messages_after(0, limit=MANY)
    assert texts([each for each in held if (each.session_id, each.number) not in committed]) == ["new"]
    restored.close()


def test_a_full_spool_drops_the_oldest_samples_and_its_gaps_count_them(file: Path) -> None:
    spool = opened(file, limit_bytes=10_000)
    spool.append([entry("event", droppable=False, size=1000)])
    for second in range(20):
        spool.append([entry(str(second), at=second * 10, size=1000)])
    messages = spool.messages_after(0, limit=MANY)
    kept = [text for text in texts(messages) if text.isdigit()]
    assert texts(messages)[0] == "event"
    assert kept == [str(second) for second in range(int(kept[0]), 20)]
    assert sum(len(message.records) for message in messages) <= 10_000 + 1000
    tables = [gap.tables[0] for gap in gaps_of(messages)]
    assert {table.name for table in tables} == {"gaps"}
    columns = [column for table in tables for column in table.columns if column.name == "messages"]
    assert sum(int.from_bytes(column.integers, "little") for column in columns) == 20 - len(kept) > 0
    spool.close()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.write_bytes(b"this is no database" * 500),
        lambda file: execute(file, "CREATE TABLE messages (position INTEGER PRIMARY KEY)"),
        flip_a_name,
    ],
    ids=["damage", "another version", "another name of a column"],
)
def test_a_damaged_spool_or_one_of_another_version_is_set_aside(file: Path, spoil: Callable[[Path], object]) -> None:
    spoil(file)
    before = file.read_bytes()
    with closing(opened(file)) as spool:
        assert spool.damaged is not None
        assert spool.damaged.read_bytes()[100:] == before[100:]
        spool.append([entry("a")])
        assert texts(spool.messages_after(0, limit=MANY)) == ["a"]


@pytest.mark.parametrize(
    "change", ["records = x'00'", "records = 5", "number = 7", "number = 'x'", "from_unix_nano = 'x', checksum = 0"]
)
def test_a_message_that_the_disk_has_changed_becomes_a_gap(file: Path, change: str) -> None:
    first = opened(file)
    first.append([entry("a"), entry("b"), entry("c")])
    first.close()
    execute(file, f"UPDATE messages SET {change} WHERE number = 2")
    spool = opened(file)
    *others, gap = spool.messages_after(0, limit=MANY)
    assert (texts(others), gap.session_id, gap.number) == (["a", "c"], spool.session.session_id, 1)
    assert b"spool_damaged" in gap.records
    assert spool.messages_after(0, limit=MANY) == [*others, gap]
    spool.append([entry("d")])
    assert [each.number for each in spool.messages_after(gap.position, limit=MANY)] == [2]
    spool.close()


@pytest.mark.parametrize("change", ["session_uuid = 'x'", "node_uuid = CAST(x'ff' AS TEXT)", "session_id = 5"])
def test_a_session_that_the_disk_has_changed_is_not_announced(file: Path, change: str) -> None:
    first = opened(file)
    first.append([entry("a"), entry("b")])
    first.close()
    execute(file, f"UPDATE sessions SET {change}")
    spool = opened(file)
    assert spool.sessions() == [spool.session]
    (gap,) = spool.messages_after(0, limit=MANY)
    assert b"spool_damaged" in gap.records
    spool.close()


def test_a_folder_that_cannot_be_written_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(SpoolError, match="--spool"):
        opened(tmp_path / "missing" / "spool.sqlite")


def test_a_full_disk_is_one_error_and_leaves_no_half_made_spool(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as full:
        full.setattr(spool_file, "_SCHEMA", f"PRAGMA max_page_count = 3; {spool_file._SCHEMA}")
        for _ in range(2):
            with pytest.raises(SpoolError, match="folder by --spool"):
                opened(file)
        damaged = file.with_name("damaged.sqlite")
        damaged.write_bytes(b"this is no database" * 500)
        with pytest.raises(SpoolError, match="folder by --spool"):
            opened(damaged)
    with closing(opened(file)) as spool:
        assert spool.damaged is None


def test_a_failed_append_writes_no_part_of_its_messages(file: Path) -> None:
    spool = opened(file)
    spool.append([entry("a")])
    spool._connection.execute("PRAGMA max_page_count = 20")
    with pytest.raises(SpoolError, match="full"):
        spool.append([entry("b"), entry("c", size=200_000)])
    spool._connection.execute("PRAGMA max_page_count = 100000")
    spool.append([entry("d")])
    assert [(each.number, each.records) for each in spool.messages_after(0, limit=MANY)] == [(1, b"a"), (2, b"d")]
    spool.close()


def test_a_rejected_message_is_set_aside(spool: Spool, file: Path) -> None:
    spool.append([entry("poison")])
    spool.set_aside(spool.session.session_id, 1, "no such table")
    spool.acknowledge({spool.session.session_id: 1})
    assert spool.waiting() == 0
    assert execute(file, "SELECT number, reason, records FROM rejected") == [(1, "no such table", b"poison")]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE open_runs SET directory = x'00ff'",
        "UPDATE open_runs SET run_id = x'ff', directory = 5",
        "UPDATE offsets SET offset = 'far'",
        "UPDATE offsets SET offset = -1",
        "UPDATE offsets SET file = x'ff'",
    ],
)
def test_an_open_run_that_the_disk_has_changed_can_be_ended(file: Path, tmp_path: Path, change: str) -> None:
    with closing(opened(file)) as spool:
        spool.append([], opened={"run": tmp_path}, offsets={("run", "events.0.0.jsonl"): 7})
    execute(file, change)
    with closing(opened(file)) as spool:
        ((run_id, (directory, offsets)),) = spool.open_runs().items()
        assert "\0" not in f"{run_id}{directory}"
        assert all(offset == 7 for offset in offsets.values())
        spool.append([], closed=[run_id])


def test_open_runs_and_their_offsets_survive_until_the_run_is_closed(file: Path, tmp_path: Path) -> None:
    spool = opened(file)
    spool.append([], opened={"r": tmp_path})
    spool.append([entry("a")], offsets={("r", "events.0.0.jsonl"): 10})
    spool.close()
    spool = opened(file)
    assert spool.open_runs() == {"r": (tmp_path, {"events.0.0.jsonl": 10})}
    spool.append([], closed=["r"])
    assert spool.open_runs() == {}
    spool.close()


@settings(max_examples=50)
@given(steps=st.lists(st.sampled_from(["append", "acknowledge", "reopen"]), max_size=30), data=st.data())
def test_whatever_happens_every_message_is_either_acknowledged_or_held(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], data: st.DataObject
) -> None:
    file = tmp_path_factory.mktemp("spool") / "spool.sqlite"
    spool = opened(file)
    written: set[str] = set()
    acknowledged: set[str] = set()
    try:
        for step in steps:
            held = spool.messages_after(0, limit=MANY)
            if step == "append":
                text = f"m{len(written)}"
                spool.append([entry(text)])
                written.add(text)
            elif step == "acknowledge" and held:
                upto = data.draw(st.sampled_from(held))
                spool.acknowledge({upto.session_id: upto.number})
                upto_now = (one for one in held if one.session_id == upto.session_id and one.number <= upto.number)
                acknowledged |= {one.records.decode() for one in upto_now}
            elif step == "reopen":
                spool.close()
                spool = opened(file)
            assert set(texts(spool.messages_after(0, limit=MANY))) == written - acknowledged
            assert spool.waiting() == len(written - acknowledged)
    finally:
        spool.close()


class FillingSpool(Spool):
    is_full = False

    def append(self, entries: Any, **tracked: Any) -> None:
        if self.is_full:
            raise SpoolError("the disk is full")
        super().append(entries, **tracked)


class Setup:
    def __init__(self, folder: Path) -> None:
        self.buffer = RecordBuffer()
        self.spool = FillingSpool(folder / "spool.sqlite", node_uuid="n", limit_bytes=1 << 30)
        self.tailed = Tailed()
        self.pipeline = Pipeline(
            buffer=self.buffer,
            spool=self.spool,
            clock=SystemClock(),
            tail=self.tail,
            on_spooled=lambda: None,
            interval_seconds=1,
        )

    def tail(self) -> Tailed:
        tailed, self.tailed = self.tailed, Tailed()
        return tailed

    def records(self) -> list[Records]:
        return [Records.FromString(message.records) for message in self.spool.messages_after(0, limit=10_000)]

    def tables(self) -> list[list[str]]:
        return [[table.name for table in message.tables] for message in self.records()]


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[Setup]:
    setup = Setup(tmp_path)
    yield setup
    setup.spool.close()


def test_samples_come_before_records_of_the_same_flush(setup: Setup) -> None:
    setup.buffer.add_record("run_states", {"status": "succeeded"})
    setup.buffer.add_samples("host_samples", [{"load_1m": 1.0}])
    setup.pipeline.flush()
    assert setup.tables() == [["host_samples"], ["run_states"]]


def test_rows_are_held_with_their_offsets_while_the_disk_is_full(setup: Setup, tmp_path: Path) -> None:
    setup.spool.is_full = True
    setup.tailed = Tailed(opened={"r": tmp_path}, offsets={("r", "events.0.0.jsonl"): 7})
    setup.buffer.add_samples("host_samples", [{"load_1m": 1.0}])
    setup.pipeline.flush()
    setup.buffer.add_samples("host_samples", [{"load_1m": 2.0}])
    setup.pipeline.flush()
    assert setup.tables() == []
    setup.spool.is_full = False
    setup.pipeline.flush()
    assert setup.tables() == [["host_samples"], ["host_samples"]]
    assert setup.spool.open_runs() == {"r": (tmp_path, {"events.0.0.jsonl": 7})}
    setup.tailed = Tailed(closed=("r",))
    setup.pipeline.flush()
    assert setup.spool.open_runs() == {}


def test_an_idle_node_flushes_less_often_until_it_has_a_run_or_somebody_watches(setup: Setup) -> None:
    clock, busy = SteppedClock(), False
    pipeline = Pipeline(
        buffer=setup.buffer,
        spool=setup.spool,
        clock=clock,
        tail=setup.tail,
        on_spooled=lambda: None,
        is_busy=lambda: busy,
        interval_seconds=1.0,
        idle_seconds=5.0,
    )

    def messages_after(turns: int) -> int:
        before = len(setup.tables())
        for _ in range(turns):
            clock.move(1.0)
            setup.buffer.add_samples("host_samples", [{"load_1m": 1.0}])
            pipeline.flush_if_due()
        return len(setup.tables()) - before

    # The first rows, which say that the node is there, do not wait.
    assert messages_after(1) == 1
    assert messages_after(10) == 2
    busy = True
    assert messages_after(3) == 3
    busy = False
    assert messages_after(4) == 0
    pipeline.set_intervals(1.0, 1.0)
    assert messages_after(4) == 4
    assert sum(table.rows for message in setup.records() for table in message.tables) == 1 + 10 + 3 + 4 + 4


def test_memory_is_bounded_while_the_disk_is_full_and_a_gap_is_recorded(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuagent.delivery.pipeline._HELD_BYTES", 1000)
    setup.spool.is_full = True
    for number in range(100):
        setup.buffer.add_samples("host_samples", [{"load_1m": float(number)}])
        setup.pipeline.flush()
    setup.buffer.add_record("results", {"name": "loss"})
    setup.spool.is_full = False
    setup.pipeline.flush()
    tables = [name for names in setup.tables() for name in names]
    assert tables[0] == "gaps"
    assert tables.count("host_samples") < 40
    assert tables.count("results") == 1


def test_a_table_that_cannot_be_encoded_is_left_out_alone(setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
    setup.buffer.add_samples("host_samples", [{"load_1m": 1.0}])
    setup.buffer.add_samples("core_samples", [{"core": "first"}, {"core": 1}])
    with caplog.at_level(logging.ERROR):
        setup.pipeline.flush()
    assert setup.tables() == [["host_samples"]]
    assert "core_samples.core" in caplog.text


async def whoami() -> str:
    return threading.current_thread().name


async def fail() -> None:
    raise ValueError("no")


def test_results_and_errors_reach_the_thread_that_started_the_coroutine() -> None:
    loop = EventLoop("elsewhere")
    assert loop.start(whoami()).result() == "elsewhere"
    with pytest.raises(ValueError, match="no"):
        loop.start(fail()).result()
    loop.close()


def test_closing_cancels_running_coroutines_and_lets_them_clean_up() -> None:
    loop = EventLoop("elsewhere")
    runs, cleaned_up = threading.Event(), threading.Event()

    async def wait() -> None:
        runs.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned_up.set()

    waiting = loop.start(wait())
    runs.wait()
    loop.close()
    assert cleaned_up.is_set()
    assert waiting.cancelled()


def test_messages_are_counted_without_an_agent(tmp_path: Path) -> None:
    file = tmp_path / "spool.sqlite"
    assert count_messages(file) == 0
    assert not file.exists()
    with closing(Spool(file, node_uuid=NODE, limit_bytes=10_000)) as spool:
        spool.append([entry("one")])
        spool.append([entry("two")])
    assert count_messages(file) == 2
