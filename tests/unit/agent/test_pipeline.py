import asyncio
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuagent.clock import SystemClock
from gpuagent.delivery.pipeline import Pipeline
from gpuagent.delivery.spool import Spool
from gpuagent.delivery.spool_file import SpoolError
from gpuagent.event_loop import EventLoop
from gpuagent.runs.tails import Tailed
from gpuagent.sampling.rows import RecordBuffer
from gpuagent_proto.v1.records_pb2 import Records


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

    def tables(self) -> list[list[str]]:
        messages = self.spool.messages_after(0, limit=10_000)
        return [[table.name for table in Records.FromString(message.records).tables] for message in messages]


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
