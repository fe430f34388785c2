"""The CPUs' clock, from sysfs cpufreq.

psutil.cpu_freq() reads three files a CPU, and in virtual machines returns the nominal clock of /proc/cpuinfo as if it
were measured.
"""

from collections.abc import Iterable

from gpuagent.clock import Instant
from gpuagent.errors import SourceError, SourceUnavailableError
from gpuagent.sources.source import Lane, Reading, SourceContext
from gpuagent.sources.support.files import OptionalFile, parse_number


class HostFrequency:
    """Mean clock over the node's CPUs.

    On the slow lane: kernels between 4.16 and 5.16 sleep 10 ms and more for an answer, once for each CPU.
    """

    name = "host_frequency"
    lane = Lane.SLOW
    max_rate_hz = 0.1

    def __init__(self, context: SourceContext) -> None:
        paths = sorted(context.sys.glob("devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq"))
        if not paths:
            raise SourceUnavailableError("the kernel has no CPU frequency (no cpufreq), as usual in virtual machines")
        self._files = [OptionalFile(path) for path in paths]

    def read(self, now: Instant) -> Iterable[Reading]:
        """Return the mean over the CPUs that report theirs; an offline CPU does not."""
        khz = [clock for file in self._files if (clock := parse_number(file.read())) is not None]
        if not khz:
            raise SourceError("no CPU reports its frequency")
        yield Reading(table="host_samples", values={"cpu_frequency_mhz": sum(khz) / len(khz) / 1000})

    def close(self) -> None:
        """Close the CPUs' files."""
        for file in self._files:
            file.close()
