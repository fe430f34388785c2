"""The CPUs' clock, from sysfs cpufreq."""

from collections.abc import Iterable
from pathlib import Path

from gpuagent.clock import Instant
from gpuagent.errors import SourceError, SourceUnavailableError
from gpuagent.sources.source import Lane, Reading, SourceContext
from gpuagent.sources.support.files import OptionalFile


def parse_khz(text: str) -> float:
    """Return the MHz of a cpufreq file, which tells kHz. Raises ValueError."""
    return int(text) / 1000


def _mhz(file: OptionalFile) -> float | None:
    text = file.read()
    try:
        return None if text is None else parse_khz(text)
    except ValueError:
        return None


class HostFrequency:
    """Mean clock over the node's CPUs.

    On the slow lane: kernels between 4.16 and 5.16 sleep 10 ms and more for an answer, once for each CPU.
    """

    name = "host_frequency"
    lane = Lane.SLOW
    max_rate_hz = 0.1

    def __init__(self, context: SourceContext) -> None:
        paths = _paths(context.sys)
        if not paths:
            raise SourceUnavailableError(
                "the kernel tells no CPU frequency (no cpufreq), as is usual in virtual machines"
            )
        self._files = [OptionalFile(path) for path in paths]

    def read(self, now: Instant) -> Iterable[Reading]:
        """Return the mean over the CPUs that tell theirs; a CPU that is switched off does not."""
        mhz = [clock for file in self._files if (clock := _mhz(file)) is not None]
        if not mhz:
            raise SourceError("no CPU tells its frequency")
        yield Reading(table="host_samples", values={"cpu_frequency_mhz": sum(mhz) / len(mhz)})

    def close(self) -> None:
        """Close the CPUs' files."""
        for file in self._files:
            file.close()


def _paths(sys: Path) -> list[Path]:
    return sorted(sys.glob("devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq"))
