"""The instants of a run, from which its duration follows."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(slots=True)
class RunTimes:
    """The instants of one run; None: not known.

    Attributes:
        launch_unix_nano: the environment was asked to start the program; whatever runs beside it carried its load.
        process_unix_nano: the program's process began, where others start it, or nothing contains it. A process that
            sets up a container and then becomes the program hides that moment.
        command_unix_nano: the environment's command for that began, which may itself become the program.
        ended_unix_nano: the program's process ended; what its container and the agent still do comes later.
    """

    launch_unix_nano: int | None = None
    command_unix_nano: int | None = None
    process_unix_nano: int | None = None
    ended_unix_nano: int | None = None

    @property
    def started_unix_nano(self) -> int | None:
        """The begin of the run: of its process, or of the command for it where that is hidden."""
        return self.process_unix_nano or self.command_unix_nano or self.launch_unix_nano

    @property
    def seconds(self) -> float | None:
        """The duration of the run; None: it never began, or the node's clock was set back while it ran."""
        if self.started_unix_nano is None or self.ended_unix_nano is None:
            return None
        seconds = (self.ended_unix_nano - self.started_unix_nano) / 1e9
        return seconds if seconds >= 0 else None

    def end_at(self, unix_nano: int | None) -> None:
        """End the run at a time that its program reports, if that is within the run."""
        if unix_nano and (self.started_unix_nano or 0) <= unix_nano <= (self.ended_unix_nano or 0):
            self.ended_unix_nano = unix_nano

    def instants(self) -> Iterator[tuple[str, int]]:
        """Yield the name and the time of each that is known."""
        for name, unix_nano in (("launch", self.launch_unix_nano), ("process", self.process_unix_nano)):
            if unix_nano is not None:
                yield name, unix_nano
