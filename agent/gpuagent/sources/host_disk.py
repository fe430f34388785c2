"""What the node's disks read and write, from /proc/diskstats. `iostat` shows the same."""

from collections.abc import Iterable
from pathlib import Path

from gpuagent.clock import Instant
from gpuagent.sources.source import Lane, Reading, SourceContext
from gpuagent.sources.support.files import exists, open_needed, read_parsed, read_text
from gpuagent.sources.support.rates import Rates, total

# The kernel's unit in this file, whatever the disk's own sectors are.
_SECTOR_BYTES = 512


def parse_diskstats(text: str) -> dict[str, tuple[int, int]]:
    """Return (bytes read, bytes written) since boot of each block device; lines that tell neither are left out.

    Raises:
        ValueError: this is not a /proc/diskstats.
    """
    devices: dict[str, tuple[int, int]] = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) > 9:
            devices[fields[2]] = (int(fields[5]) * _SECTOR_BYTES, int(fields[9]) * _SECTOR_BYTES)
    return devices


def is_whole_disk(name: str, sys: Path) -> bool:
    """Tell whether this is a disk of its own.

    Partitions, and what is made of other devices (dm, md, loop, zram, the paths of a multipath disk), would count the
    same bytes twice.
    """
    entry = sys / "block" / name
    return exists(entry / "device") and (read_text(entry / "hidden") or "0").strip() == "0"


class HostDisk:
    """Bytes a second to and from the node's whole disks together."""

    name = "host_disk"
    lane = Lane.FAST
    max_rate_hz = 0.5

    def __init__(self, context: SourceContext) -> None:
        self._sys = context.sys
        self._file = open_needed(context.proc / "diskstats")
        self._whole: dict[str, bool] = {}
        self._read: Rates[str] = Rates()
        self._written: Rates[str] = Rates()

    def read(self, now: Instant) -> Iterable[Reading]:
        """Return the rates since the reading before; a disk counts from its second reading on."""
        disks = {
            name: counters
            for name, counters in read_parsed(self._file, parse_diskstats).items()
            if self._is_whole(name)
        }
        read = self._read.per_second({name: read for name, (read, _) in disks.items()}, now)
        written = self._written.per_second({name: written for name, (_, written) in disks.items()}, now)
        values = {"disk_read_bytes_per_second": total(read), "disk_write_bytes_per_second": total(written)}
        yield Reading(table="host_samples", values=values)

    def _is_whole(self, name: str) -> bool:
        if name not in self._whole:
            self._whole[name] = is_whole_disk(name, self._sys)
        return self._whole[name]

    def close(self) -> None:
        """Close /proc/diskstats."""
        self._file.close()
