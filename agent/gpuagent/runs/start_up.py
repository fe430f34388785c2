"""When a run's program was called for, and when its process was there: what a container costs before the first step."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Of /proc/PID/stat, counted behind the program's name: `starttime`, field 22 in proc(5).
_START_TIME_FIELD = 19


@dataclass(slots=True)
class StartUp:
    """The instants of one run; None: not known.

    Attributes:
        launch_unix_nano: the environment was asked to start the program; what runs beside it had reached its load.
        process_unix_nano: the program's process began, where others start it, or nothing contains it. Where the process
            that sets a container up becomes the program, that moment cannot be seen from outside.
    """

    launch_unix_nano: int | None = None
    process_unix_nano: int | None = None

    def instants(self) -> Iterator[tuple[str, int]]:
        """Yield the name and the time of each that is known."""
        for name, unix_nano in (("launch", self.launch_unix_nano), ("process", self.process_unix_nano)):
            if unix_nano is not None:
                yield name, unix_nano


def process_start_unix_nano(pid: int, proc: Path = Path("/proc")) -> int | None:
    """Return when a process began, to a hundredth of a second; None: it is gone."""
    try:
        fields = (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        ticks = int(fields[_START_TIME_FIELD])
    except (OSError, IndexError, ValueError):
        return None
    booted_unix_nano = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return booted_unix_nano + ticks * 1_000_000_000 // _TICKS_PER_SECOND
