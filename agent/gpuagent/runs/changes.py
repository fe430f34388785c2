"""Changes of the CPUs of a run while it runs."""

import threading
import time
from collections.abc import Callable, Sequence

from gpuagent.environments import ClientError, ask_client
from gpuagent_common.limits import CpuChange


class Changes:
    """The changes of one run. Their times count from its first process on: containers take a while to start.

    Args:
        changes: in the order of their times.
        command: returns the command that gives the run so many CPUs.
        ended: is set once the run has ended.
    """

    def __init__(
        self, changes: Sequence[CpuChange], command: Callable[[float], Sequence[str]], ended: threading.Event
    ) -> None:
        self._left = list(changes)
        self._command = command
        self._ended = ended
        # The error of a change that failed; None: none failed.
        self.refusal: str | None = None
        # Each change with its time in Unix nanoseconds.
        self.made: list[tuple[CpuChange, int]] = []

    @property
    def missed(self) -> str | None:
        """The first change that the run did not live to see, as a reason; None: all were made."""
        return f"it ended before its change {self._left[0]}" if self._left else None

    def make(self, started_unix_nano: int) -> bool:
        """Make each change at its time until the run ends; return False if one failed.

        Args:
            started_unix_nano: the start of the run's first process.
        """
        while self._left:
            change = self._left[0]
            if self._ended.wait(change.after_seconds - (time.time_ns() - started_unix_nano) / 1e9):
                return True
            try:
                ask_client(self._command(change.cpus))
            except ClientError as error:
                self.refusal = f"its change {change} was not made: {error}"
                return False
            self.made.append((self._left.pop(0), time.time_ns()))
        return True
