"""Files that are damaged, copied, or on a full disk. Small disks are tmpfs mounts, which only root can make."""

import errno
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

import duckdb

from gpuagent_collector.store import Store
from tests.fault.invariants import Findings
from tests.fault.site import Site
from tests.support.servers import BIN

_PAGE_BYTES = 4096
_STORE_ROWS = 200_000
_CONTENT = "SELECT bit_xor(hash(whole)) FROM core_samples AS whole"


def damage(file: Path, random: Random) -> None:
    content = bytearray(file.read_bytes())
    place = random.randrange(len(content))
    match random.choice(["cut", "flip", "overwrite"]):
        case "cut":
            del content[place:]
        case "flip":
            content[place] ^= 1 << random.randrange(8)
        case "overwrite":
            page = place // _PAGE_BYTES * _PAGE_BYTES
            content[page : page + _PAGE_BYTES] = random.randbytes(min(_PAGE_BYTES, len(content) - page))
    file.write_bytes(content)


def spool_damaged(site: Site, random: Random) -> None:
    site.proxy.refuse()
    site.proxy.cut()
    time.sleep(random.uniform(0.2, 0.6))
    site.stop_generator(site.generators[0], signal.SIGTERM)
    damage(site.node.folder / site.spool / "spool.sqlite", random)
    site.proxy.listen()
    site.start_generator()


class StoreCopies:
    """A store, of which copies are damaged: each is either refused in words, or read as it was."""

    def __init__(self, folder: Path) -> None:
        self._whole = folder / "whole.duckdb"
        self._copy = folder / "copy.duckdb"
        with Store.open(str(self._whole)) as store, store.connect() as connection:
            connection.execute(
                "INSERT INTO core_samples BY NAME SELECT make_timestamp(1900000000000000 + i * 1000) AS time, "
                f"i AS core, hash(i) / 3 AS cpu_percent FROM range({_STORE_ROWS}) r(i)"
            )
        self._content = _content(self._whole)
        self._trials = 0
        self._wrong: set[int] = set()
        # How many damages were told.
        self.told = 0

    def damage(self, random: Random) -> None:
        self._trials += 1
        shutil.copy(self._whole, self._copy)
        damage(self._copy, random)

    def settle(self) -> float:
        """Check the copy; return the seconds that took."""
        started = time.monotonic()
        done = subprocess.run(
            [str(BIN / "collector"), "check", "--store", str(self._copy)], capture_output=True, text=True, check=False
        )
        seconds = time.monotonic() - started
        assert done.returncode in (0, 1), f"exit code {done.returncode}: {done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        if done.returncode == 0 and _content(self._copy) != self._content:
            self._wrong.add(self._trials)
        self.told += done.returncode
        return seconds

    def findings(self) -> Findings:
        """Return the trials in which the check said that all is well, and the rows were others."""
        return Findings(lost=frozenset(self._wrong), given_up=self.told, told=self.told)

    def leftovers(self) -> list[str]:
        return []

    def close(self) -> None:
        self._copy.unlink(missing_ok=True)


def store_damaged(copies: StoreCopies, random: Random) -> None:
    copies.damage(random)


def _content(file: Path) -> object:
    with duckdb.connect(str(file), read_only=True) as connection:
        return connection.execute(_CONTENT).fetchone()


def two_agents_with_one_identity(site: Site, random: Random) -> None:
    """Another agent of the same node delivers at the same time, from a spool of its own."""
    _run_beside(site, "other", random)


def spool_cloned(site: Site, random: Random) -> None:
    """A copy of the spool, made in mid-run, is delivered by another agent at the same time."""
    time.sleep(random.uniform(0.0, 0.3))
    _copy(site, "other")
    _run_beside(site, "other", random)


def spool_restored(site: Site, random: Random) -> None:
    """An older copy of the spool takes its place, with messages that have long been delivered."""
    if random.random() < 0.5:
        site.proxy.refuse()  # so that the copy has messages in it
        site.proxy.cut()
        time.sleep(random.uniform(0.1, 0.5))
    _copy(site, "older")
    site.proxy.refuse()
    site.proxy.listen()
    time.sleep(random.uniform(0.0, 0.3))
    site.settle()
    site.stop_generator(site.generators[0])
    shutil.rmtree(site.node.folder / site.spool)
    (site.node.folder / "older").rename(site.node.folder / site.spool)
    site.start_generator()


def _run_beside(site: Site, spool: str, random: Random) -> None:
    other = site.start_generator(spool)
    time.sleep(random.uniform(0.2, 1.0))
    site.stop_generator(other)
    while _waiting(site, spool):  # it was just reconnecting: another agent of the node delivers the rest
        other = site.start_generator(spool)
        site.settle()
        site.stop_generator(other)
    shutil.rmtree(site.node.folder / spool)


def _waiting(site: Site, spool: str) -> int:
    with closing(sqlite3.connect(site.node.folder / spool / "spool.sqlite")) as connection:
        return int(connection.execute("SELECT count(*) FROM messages").fetchone()[0])


def _copy(site: Site, name: str) -> None:
    """Copy the spool's files one after the other, as `cp` does, while they are written."""
    target = site.node.folder / name
    target.mkdir(mode=0o700)
    for suffix in ("", "-wal"):
        shutil.copy(site.node.folder / site.spool / f"spool.sqlite{suffix}", target)


_SIZE = "48m"
_BLOCK = b"\0" * 65536


class _SmallDiskSite(Site, ABC):
    @property
    def disk(self) -> Path:
        return self.node.folder / "small"

    def prepare(self) -> None:
        self.disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "gpuagent-faults", self.disk], check=True)
        self.use_disk()

    @abstractmethod
    def use_disk(self) -> None:
        """Have something lie on the small disk."""

    @contextmanager
    def filled(self) -> Iterator[None]:
        """Fill the disk to its last byte for as long as the block takes."""
        filler = self.disk / "filler"
        with filler.open("wb", buffering=0) as file:
            _fill(file.fileno())
        try:
            yield
        finally:
            filler.unlink()

    def close(self) -> None:
        super().close()
        subprocess.run(["umount", "--lazy", self.disk], check=True)


class SpoolOnSmallDisk(_SmallDiskSite):
    def use_disk(self) -> None:
        self.spool = "small/spool"


class StoreOnSmallDisk(_SmallDiskSite):
    def use_disk(self) -> None:
        self.node.store = self.disk / "runs.duckdb"


def spool_disk_full(site: SpoolOnSmallDisk, random: Random) -> None:
    """The spool's disk is full for a while; now and then the agent is killed then."""
    with site.filled():
        time.sleep(random.uniform(0.2, 1.5))
        killed = random.random() < 0.3
        if killed:
            site.stop_generator(site.generators[0], signal.SIGKILL)
    if killed:
        site.start_generator()


def store_disk_full(site: StoreOnSmallDisk, random: Random) -> None:
    """The store's disk is full for a while; a collector that ended itself is started again, as a service is."""
    with site.filled():
        time.sleep(random.uniform(0.2, 1.5))
    if site.collector.poll() is not None:
        site.start_collector()


def _fill(descriptor: int) -> None:
    for block in (_BLOCK, b"\0"):
        try:
            while os.write(descriptor, block):
                pass
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
