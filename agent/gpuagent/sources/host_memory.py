"""The node's memory and swap, from /proc/meminfo. `free` shows the same.

psutil.virtual_memory() has no anonymous memory, and counts reclaimable slabs as cache.
"""

import re
from collections.abc import Iterable, Mapping

from gpuagent.clock import Instant
from gpuagent.sources.source import Lane, Reading, Value
from gpuagent.sources.support.files import FileSource, read_parsed

_WANTED = re.compile(
    r"^(MemTotal|MemAvailable|AnonPages|Cached|SwapTotal|SwapFree): +([0-9]{1,18}) kB$", flags=re.MULTILINE
)


def parse_meminfo(text: str) -> dict[str, int]:
    """Return the sampled lines, in bytes; those that an old kernel lacks are left out.

    Raises:
        ValueError: this is not a /proc/meminfo.
    """
    numbers = {name: int(kibibytes) * 1024 for name, kibibytes in _WANTED.findall(text)}
    if "MemTotal" not in numbers:
        raise ValueError("it has no MemTotal")
    return numbers


def memory_values(meminfo: Mapping[str, int]) -> dict[str, Value]:
    """Return the columns of host_samples, in bytes; where more is free than there is, the rest is negative, not 0."""

    def difference(whole: str, part: str) -> int | None:
        return meminfo[whole] - meminfo[part] if {whole, part} <= meminfo.keys() else None

    return {
        "memory_total_bytes": meminfo["MemTotal"],
        "memory_used_bytes": difference("MemTotal", "MemAvailable"),
        "memory_available_bytes": meminfo.get("MemAvailable"),
        "memory_anonymous_bytes": meminfo.get("AnonPages"),
        "memory_cached_bytes": meminfo.get("Cached"),
        "swap_total_bytes": meminfo.get("SwapTotal"),
        "swap_used_bytes": difference("SwapTotal", "SwapFree"),
    }


class HostMemory(FileSource):
    """Memory and swap of the whole node."""

    name = "host_memory"
    lane = Lane.FAST
    max_rate_hz = 2.0
    file = "meminfo"

    def read(self, now: Instant) -> Iterable[Reading]:
        """Return the memory in use and the rest."""
        yield Reading(table="host_samples", values=memory_values(read_parsed(self._file, parse_meminfo)))
