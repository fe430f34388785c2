"""The start of a run: when its program was launched, and when its process existed. The gap is a container's cost."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import psutil


@dataclass(slots=True)
class StartUp:
    """The instants of one run; None: not known.

    Attributes:
        launch_unix_nano: the environment was asked to start the program; whatever runs beside it carried its load.
        process_unix_nano: the program's process began, where others start it, or nothing contains it. A process that
            sets up a container and then becomes the program hides that moment.
    """

    launch_unix_nano: int | None = None
    process_unix_nano: int | None = None

    def instants(self) -> Iterator[tuple[str, int]]:
        """Yield the name and the time of each that is known."""
        for name, unix_nano in (("launch", self.launch_unix_nano), ("process", self.process_unix_nano)):
            if unix_nano is not None:
                yield name, unix_nano


def process_start_unix_nano(pid: int) -> int | None:
    """Return when a process began, to a hundredth of a second; None: it is gone."""
    try:
        process = psutil.Process(pid)
        since_boot_seconds = process.create_time() - psutil.boot_time()
    except (psutil.Error, OSError, RuntimeError):
        return None
    # psutil's boot time has whole seconds; with it a process could seem to begin before its launch.
    booted_unix_nano = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return booted_unix_nano + round(since_boot_seconds * 100) * 10_000_000
