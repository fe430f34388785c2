"""`python -m tests.fault.generator`: the agent's way from buffer to collector, fed with numbered rows and nothing else.

It is the agent's own buffer, pipeline, spool and uplink; only sources, runs and the socket are left out, so that what
it makes is known to the last row. Each flush that has become durable is noted in a journal before the next begins.
SIGUSR1 steps its wall clock by what the file `clock` says, in seconds; SIGTERM ends it as an agent ends.
"""

import itertools
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from gpuagent.clock import Instant, SystemClock
from gpuagent.delivery.pipeline import Pipeline
from gpuagent.delivery.spool import Spool, gap_entry
from gpuagent.delivery.stream import Orders
from gpuagent.delivery.uplink import Access, Delivery, Uplink
from gpuagent.event_loop import EventLoop
from gpuagent.runs.events import Tailed
from gpuagent.runs.output import Piece
from gpuagent.sampling.rows import RecordBuffer
from gpuagent.sampling.sampler import Sampler
from gpuagent_proto.v1.run_pb2 import RunSpec
from tests.fault.invariants import Flush

ROWS_A_FLUSH = 5
FLUSH_SECONDS = 0.02
# Each generator process has its own block of numbers.
BLOCK = 1 << 32

CLOCK_FILE = "clock"


@dataclass(slots=True, kw_only=True)
class SteppedClock:
    step_nano: int = 0

    def now(self) -> Instant:
        now = SystemClock().now()
        return now._replace(unix_nano=now.unix_nano + self.step_nano)


class Generator:
    """Makes numbered rows until it is stopped."""

    def __init__(self, folder: Path, address: str, token_file: Path, journal: Path, limit_bytes: int) -> None:
        self._journal = journal
        self._clock = SteppedClock()
        self._buffer = RecordBuffer()
        self._spool = Spool(folder / "spool.sqlite", node_uuid=NODE_UUID, limit_bytes=limit_bytes)
        self._uplink = Uplink(
            access=Access(address=address, token_file=token_file),
            spool=self._spool,
            buffer=self._buffer,
            clock=self._clock,
            orders=_no_orders(),
            hostname="generator",
        )
        self._pipeline = Pipeline(
            buffer=self._buffer,
            spool=self._spool,
            clock=self._clock,
            tail=Tailed,
            on_spooled=self._uplink.notify,
            interval_seconds=FLUSH_SECONDS,
        )

    def run(self, stop: threading.Event) -> None:
        """Make rows until `stop`, and deliver what can be delivered then."""
        signal.signal(signal.SIGUSR1, self._step)
        self._describe()
        loop = EventLoop("event loop")
        loop.start(self._uplink.run())
        lane = threading.Thread(target=self._watch_clock, args=(stop,))
        lane.start()
        self._generate(stop)
        lane.join()
        self._pipeline.flush()
        self._uplink.wait_until_delivered(Delivery())
        loop.close()
        self._spool.close()

    def _describe(self) -> None:
        session = self._spool.session
        now = self._clock.now().unix_nano
        self._buffer.add_record(
            "sessions",
            {"session_uuid": session.session_uuid, "node_uuid": NODE_UUID, "started_at": now, "platform": "fault"},
        )
        if self._spool.damaged:
            now = time.time_ns()
            self._spool.append([gap_entry(now, now, "spool_damaged", messages=None)])

    def _generate(self, stop: threading.Event) -> None:
        pending: list[Flush] = []
        first = int(self._journal.name.rpartition("-")[2]) * BLOCK
        with self._journal.open("a", buffering=1) as journal:
            for start in itertools.count(first, ROWS_A_FLUSH):
                pending.append(self._flush(range(start, start + ROWS_A_FLUSH)))
                if not self._pipeline.held:
                    journal.write("".join(flush.line() for flush in pending))
                    pending.clear()
                if stop.wait(FLUSH_SECONDS):
                    return

    def _flush(self, numbers: range) -> Flush:
        start = self._clock.now().unix_nano
        self._buffer.add_samples("core_samples", [{"time": start, "core": number} for number in numbers])
        self._buffer.add_record("results", {"time": start, "rank": numbers[-1], "name": "generated"})
        self._pipeline.flush()
        return Flush(numbers=numbers, from_unix_nano=start, to_unix_nano=self._clock.now().unix_nano)

    def _watch_clock(self, stop: threading.Event) -> None:
        Sampler((), rate_hz=20, clock=self._clock, buffer=self._buffer).run(stop)

    def _step(self, _number: int, _frame: object) -> None:
        self._clock.step_nano += int(float(self._journal.with_name(CLOCK_FILE).read_text()) * 1e9)


NODE_UUID = "the generators' node"


def _no_orders() -> Orders:
    def refuse(_spec: RunSpec) -> list[str]:
        return []

    return Orders(
        launch=refuse,
        cancel=lambda _run_id: None,
        read_output=lambda *_: Piece(text="", next_offset_bytes=0, at_end=True),
        pace=lambda _busy, _idle: None,
        allows_commands=False,
    )


def main() -> None:
    folder, address, token_file, journal, limit_bytes = sys.argv[1:]
    Path(folder).mkdir(parents=True, exist_ok=True, mode=0o700)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    Generator(Path(folder), address, Path(token_file), Path(journal), int(limit_bytes)).run(stop)


if __name__ == "__main__":
    main()
