"""The number of tasks that wanted to run, from /proc/loadavg. `uptime` shows the same."""

from collections.abc import Iterable

import psutil

from gpuagent.clock import Instant
from gpuagent.sources.source import Lane, Reading
from gpuagent.sources.support.files import FileSource, read_psutil


class HostLoad(FileSource):
    """The node's load average over one minute, in tasks."""

    name = "host_load"
    lane = Lane.FAST
    # The kernel computes it every 5 s.
    max_rate_hz = 0.2
    file = "loadavg"

    def read(self, now: Instant) -> Iterable[Reading]:
        """Return the load."""
        yield Reading(table="host_samples", values={"load_1m": read_psutil(psutil.getloadavg, self.file)[0]})
