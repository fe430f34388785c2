"""Files that are damaged on the disk."""

import shutil
import signal
import subprocess
import time
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
    """Cut the file short, flip one bit, or overwrite a page."""
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
    """The spool's file is damaged while no agent runs and messages wait in it."""
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
        """Damage a new copy."""
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
        """Return what should not be there."""
        return []

    def close(self) -> None:
        """Remove the copy."""
        self._copy.unlink(missing_ok=True)


def store_damaged(copies: StoreCopies, random: Random) -> None:
    """A store's file is damaged while no collector runs."""
    copies.damage(random)


def _content(file: Path) -> object:
    with duckdb.connect(str(file), read_only=True) as connection:
        return connection.execute(_CONTENT).fetchone()
