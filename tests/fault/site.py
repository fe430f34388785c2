"""A collector and generators as real processes, a proxy between them, and what is known of what they made."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow as pa

from gpuagent_collector.query.reader import StreamingReader, open_reader
from gpuagent_common.errors import GpuAgentError
from tests.fault.invariants import Findings, Flush, Gap, Stored, compare, count, read_journal
from tests.fault.proxy import FaultProxy
from tests.support.servers import Node, until

ROOT = Path(__file__).resolve().parents[2]

# A spool that nothing fills.
ROOMY_BYTES = 1 << 30

_POLL_SECONDS = 0.03
_STORE_FILES = {"runs.duckdb", "runs.duckdb.wal", "runs.duckdb.tmp"}

# The store keeps microseconds.
_GAPS = """
SELECT reason, epoch_ns(from_time) AS from_unix_nano, epoch_ns(to_time) + 999 AS to_unix_nano, messages FROM gaps
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generator:
    """A generator's process, and its spool's folder by its name in the site's."""

    process: "subprocess.Popen[str]"
    spool: str


class Site:
    """One collector, and generators that reach it through a proxy. `generators` are those that are meant to run."""

    def __init__(self, folder: Path) -> None:
        self.node = Node(folder)
        self.spool = "spool"
        self.node.environment["PYTHONPATH"] = str(ROOT)
        self.generators: list[Generator] = []
        self._blocks = 0
        self.prepare()
        self.collector = self.serve()
        self.address = self.node.environment["GPUAGENT_COLLECTOR"]
        self.proxy = FaultProxy(self.address)
        self.start_generator()
        self.settle()
        self._fds = self.fds()

    def prepare(self) -> None:
        """Do what comes before the first process."""

    def serve(self, listen: str = "127.0.0.1:0") -> "subprocess.Popen[str]":
        """Start a collector and wait until it listens."""
        return self.node.serve(listen)

    def start_generator(
        self, spool: str | None = None, limit_bytes: int = ROOMY_BYTES, under: Sequence[str] = ()
    ) -> Generator:
        """Start a generator on a spool, the site's own for None, and wait until it makes rows, or has ended.

        With `under`, the command that runs it.
        """
        self._blocks += 1
        name, journal = spool or self.spool, self.journal(self._blocks)
        process = self.node.start(
            *(*under, sys.executable, "-m", "tests.fault.generator", str(self.node.folder / name), self.proxy.address),
            *(self.node.environment["GPUAGENT_TOKEN_FILE"], str(journal), str(limit_bytes)),
            log=f"generator-{self._blocks}.log",
        )
        generator = Generator(process=process, spool=name)
        self.generators.append(generator)
        until(lambda: process.poll() or (journal.exists() and journal.stat().st_size), f"rows of {journal.name}")
        return generator

    def journal(self, block: int) -> Path:
        return self.node.folder / f"journal-{block}"

    def stop_generator(self, generator: Generator, number: signal.Signals = signal.SIGTERM) -> None:
        """End a generator; what it could not deliver stays in its spool."""
        self.generators.remove(generator)
        self.node.stop(generator.process, number)

    def kill_generator(self, generator: Generator) -> None:
        self.stop_generator(generator, signal.SIGKILL)
        self.start_generator(generator.spool)

    def kill_collector(self) -> None:
        self.node.stop(self.collector, signal.SIGKILL)

    def start_collector(self) -> None:
        self.collector = self.serve(self.address)

    def made(self) -> list[Flush]:
        files = [self.journal(block) for block in range(1, self._blocks + 1)]
        return [flush for file in files if file.exists() for flush in read_journal(file)]

    def settle(self) -> float:
        """Wait until everything that is durable now is in the store; return the seconds that took."""
        started, made = time.monotonic(), self.made()
        self._wait_for(made)
        return time.monotonic() - started

    def _wait_for(self, made: Sequence[Flush]) -> None:
        try:
            until(lambda: self._has(made), f"all of {len(made)} flushes")
        except AssertionError as error:
            raise AssertionError(f"{error}: {compare(made, self.stored())}") from error

    def _has(self, made: Sequence[Flush]) -> bool:
        time.sleep(_POLL_SECONDS)
        try:
            found = compare(made, self.stored())
        except GpuAgentError:
            return False
        return found.are_none or bool(found.duplicated)

    def findings(self) -> Findings:
        made = self.made()
        with suppress(AssertionError):
            self._wait_for(made)
        return compare(made, self.stored())

    def stored(self) -> Stored:
        """Return what the store holds.

        Raises:
            GpuAgentError: the collector does not answer.
        """
        with self.reading() as reader:
            records = reader.sql("SELECT rank AS number FROM results WHERE rank IS NOT NULL")
            samples = reader.sql("SELECT core AS number FROM core_samples")
            gaps = reader.sql(_GAPS).to_pylist()
        return Stored(samples=_counts(samples), records=_counts(records), gaps=tuple(Gap(**gap) for gap in gaps))

    @contextmanager
    def reading(self) -> Iterator[StreamingReader]:
        token_file = Path(self.node.environment["GPUAGENT_TOKEN_FILE"])
        reader = open_reader(address=self.address, token_file=token_file, store=None)
        try:
            yield reader
        finally:
            reader.close()

    def fds(self) -> int:
        """Return how many files and connections the collector and the generators have open."""
        processes = [self.collector, *(generator.process for generator in self.generators)]
        return sum(psutil.Process(process.pid).num_fds() for process in processes)

    def leftovers(self) -> list[str]:
        processes = [self.collector, *(generator.process for generator in self.generators)]
        theirs = [child for each in processes for child in psutil.Process(each.pid).children(recursive=True)]
        zombies = [f"process {each.pid} ({each.status()})" for each in theirs]
        store = self.node.store
        files = [f"file {each.name}" for each in store.parent.glob("runs*") if each.name not in _STORE_FILES]
        grown = self.fds() - self._fds - 40 * (len(self.generators) - 1)
        return zombies + files + ([f"{grown} more descriptors"] if grown > 20 else [])

    def close(self) -> None:
        self.node.close()
        self.proxy.close()


def _counts(table: pa.Table) -> Mapping[int, int]:
    return count(table["number"].to_pylist())
