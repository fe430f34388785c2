"""How many tasks wanted to run, from /proc/loadavg. `uptime` shows the same."""

from collections.abc import Iterable

from gpuagent.clock import Instant
from gpuagent.sources.source import Lane, Reading, SourceContext
from gpuagent.sources.support.files import open_needed, read_parsed


def parse_loadavg(text: str) -> float:
    """Return the load average over one minute, in tasks. Raises ValueError."""
    return float(text.partition(" ")[0])


class HostLoad:
    """The node's load average."""

    name = "host_load"
    lane = Lane.FAST
    # The kernel computes it every 5 s.
    max_rate_hz = 0.2

    def __init__(self, context: SourceContext) -> None:
        self._file = open_needed(context.proc / "loadavg")

    def read(self, now: Instant) -> Iterable[Reading]:
        """Return the load."""
        yield Reading(table="host_samples", values={"load_1m": read_parsed(self._file, parse_loadavg)})

    def close(self) -> None:
        """Close /proc/loadavg."""
        self._file.close()
