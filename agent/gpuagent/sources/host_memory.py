"""The node's memory and swap, from /proc/meminfo. `free` shows the same."""

import re
from collections.abc import Iterable, Mapping

from gpuagent.clock import Instant
from gpuagent.sources.source import Lane, Reading, SourceContext, Value
from gpuagent.sources.support.files import open_needed, read_parsed

_WANTED = re.compile(
    r"^(MemTotal|MemAvailable|AnonPages|Cached|SwapTotal|SwapFree): +([0-9]{1,18}) kB$", flags=re.MULTILINE
)


def parse_meminfo(text: str) -> dict[str, int]:
    """Return the lines that are sampled, in bytes; what an old kernel does not tell is left out.

    Raises:
        ValueError: this is not a /proc/meminfo.
    """
    numbers = {name: int(kibibytes) * 1024 for name, kibibytes in _WANTED.findall(text)}
    if "MemTotal" not in numbers:
        raise ValueError("it has no MemTotal")
    return numbers


def memory_values(meminfo: Mapping[str, int]) -> dict[str, Value]:
    """Return the columns of host_samples, in bytes."""
    return {
        "memory_total_bytes": meminfo["MemTotal"],
        "memory_used_bytes": _less(meminfo["MemTotal"], meminfo.get("MemAvailable")),
        "memory_available_bytes": meminfo.get("MemAvailable"),
        "memory_anonymous_bytes": meminfo.get("AnonPages"),
        "memory_cached_bytes": meminfo.get("Cached"),
        "swap_total_bytes": meminfo.get("SwapTotal"),
        "swap_used_bytes": _less(meminfo.get("SwapTotal"), meminfo.get("SwapFree")),
    }


def _less(whole: int | None, part: int | None) -> int | None:
    return None if whole is None or part is None else max(0, whole - part)


class HostMemory:
    """Memory and swap of the whole node."""

    name = "host_memory"
    lane = Lane.FAST
    max_rate_hz = 2.0

    def __init__(self, context: SourceContext) -> None:
        self._file = open_needed(context.proc / "meminfo")

    def read(self, now: Instant) -> Iterable[Reading]:
        """Return what is in use and what is left."""
        yield Reading(table="host_samples", values=memory_values(read_parsed(self._file, parse_meminfo)))

    def close(self) -> None:
        """Close /proc/meminfo."""
        self._file.close()
