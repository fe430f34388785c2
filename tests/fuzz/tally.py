"""The tally of one target: inputs, seconds, and one example of each distinct failure."""

import hashlib
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType

# Gives an input to what is fuzzed. What it raises is a finding.
Attempt = Callable[[bytes], None]

# One input takes well below a millisecond of most targets, and a few of the slowest.
HANG_SECONDS = 10.0

_OURS = ("/gpuagent/", "/gpuagent_collector/", "/gpuagent_workloads/", "/gpuagent_proto/")


class HangError(BaseException):
    """An input took too long. It is no Exception, so that nothing that is fuzzed takes it for one of its own."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """Gives inputs to a target, and keeps what it does wrong in `folder`, an input for each place in the code."""

    attempt: Attempt
    folder: Path
    hang_seconds: float = HANG_SECONDS
    inputs: int = 0
    # Place in the code → what it says. The input lies in the folder.
    findings: dict[str, str] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)

    def give(self, data: bytes) -> None:
        """Give one input to the target."""
        self.inputs += 1
        signal.signal(signal.SIGALRM, _hang)
        signal.setitimer(signal.ITIMER_REAL, self.hang_seconds)
        try:
            self.attempt(data)
        except (Exception, HangError) as error:  # noqa: BLE001 - whatever it is, it is what is looked for
            self._note(data, error)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    @property
    def seconds(self) -> float:
        """The seconds since its start."""
        return time.monotonic() - self.started

    def _note(self, data: bytes, error: BaseException) -> None:
        place = f"{type(error).__name__} at {_place(error.__traceback__)}"
        if place in self.findings:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        name = hashlib.sha256(place.encode()).hexdigest()[:12]
        (self.folder / f"{name}.input").write_bytes(data)
        (self.folder / f"{name}.txt").write_text("".join(traceback.format_exception(error)), errors="replace")
        self.findings[place] = f"{' '.join(str(error).split())[:200]} [{self.folder / name}.input]"


def _hang(_number: int, _frame: FrameType | None) -> None:
    raise HangError("not done in time")


def _place(trace: TracebackType | None) -> str:
    """Return the innermost line of ours; where there is none, the innermost line."""
    frames = traceback.extract_tb(trace)
    ours = [frame for frame in frames if any(part in frame.filename for part in _OURS)] or frames
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
