"""The traffic of the node's disks, from /proc/diskstats. `iostat` shows the same."""

from collections.abc import Iterable
from pathlib import Path

import psutil

from gpuagent.clock import Instant
from gpuagent.sources.source import Lane, Reading, SourceContext
from gpuagent.sources.support.files import FileSource, exists, read_psutil, read_text
from gpuagent.sources.support.rates import Rates, total


def is_whole_disk(name: str, sys: Path) -> bool:
    """Return whether this is a disk of its own.

    Partitions, and devices made of others (dm, md, loop, zram, the paths of a multipath disk), would count the same
    bytes twice; psutil leaves out partitions only.
    """
    entry = sys / "block" / name
    return exists(entry / "device") and (read_text(entry / "hidden") or "0").strip() == "0"


class HostDisk(FileSource):
    """Bytes a second to and from the node's whole disks together."""

    name = "host_disk"
    lane = Lane.FAST
    max_rate_hz = 0.5
    file = "diskstats"

    def __init__(self, context: SourceContext) -> None:
        super().__init__(context)
        self._sys = context.sys
        self._whole: dict[str, bool] = {}
        self._read: Rates[str] = Rates()
        self._written: Rates[str] = Rates()

    def read(self, now: Instant) -> Iterable[Reading]:
        """Return the rates since the reading before; a disk counts from its second reading on."""
        # Without nowrap=False psutil would hide that a counter was reset.
        counters = read_psutil(lambda: psutil.disk_io_counters(perdisk=True, nowrap=False), self.file)
        for name in counters.keys() - self._whole.keys():
            self._whole[name] = is_whole_disk(name, self._sys)
        disks = {name: count for name, count in counters.items() if self._whole[name]}
        read = self._read.per_second({name: disk.read_bytes for name, disk in disks.items()}, now)
        written = self._written.per_second({name: disk.write_bytes for name, disk in disks.items()}, now)
        values = {"disk_read_bytes_per_second": total(read), "disk_write_bytes_per_second": total(written)}
        yield Reading(table="host_samples", values=values)
