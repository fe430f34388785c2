"""Disks that are full. They are small tmpfs mounts, which only root can make."""

import errno
import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from tests.fault.site import Site

_SIZE = "48m"
_BLOCK = b"\0" * 65536


class _SmallDiskSite(Site, ABC):
    """A site with a small disk."""

    @property
    def disk(self) -> Path:
        """Where the small disk is."""
        return self.node.folder / "small"

    def prepare(self) -> None:
        """Mount the small disk."""
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
        """End every process, and take the disk away."""
        super().close()
        subprocess.run(["umount", "--lazy", self.disk], check=True)


class SpoolOnSmallDisk(_SmallDiskSite):
    """The spool is on the small disk."""

    def use_disk(self) -> None:
        """Have the spool there."""
        self.spool = "small/spool"


class StoreOnSmallDisk(_SmallDiskSite):
    """The store is on the small disk."""

    def use_disk(self) -> None:
        """Have the store there."""
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
