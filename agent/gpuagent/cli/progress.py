"""A line about a run at the bottom of a terminal, while the run goes on.

The line of each ended run of a bench or an experiment is printed by `conducting.RunLines`.
"""

import contextlib
import json
import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click

from gpuagent.runs.events import EventTailer
from gpuagent.sampling.rows import Row
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.text import counted
from gpuagent_proto.v1.agent_service_pb2 import GpuNow

_DRAW_SECONDS = 1.0
# The rate is that of the steps of this time.
_RATE_SECONDS = 10.0

# Steps in words, by their phase.
_PHASE_STEPS: Mapping[object, str] = {"warmup": "warm-up step", "measure": "measured step"}

_CLEAR = "\r\x1b[K"

ReadGpus = Callable[[str], Sequence[GpuNow]]


def has_terminal() -> bool:
    """Return whether stderr is a terminal in which a line can be redrawn."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class ProgressLine:
    """A line with the time, the steps, the rest and the GPUs of one run; empty until the run has been on for 1 s.

    Args:
        directory: the run's, where it reports its steps.
        read_gpus: returns the GPUs that a run uses, with their readings.
        usual_seconds: the duration of earlier repeats; None: unknown.
        title: what stands for the run; empty: its identity.
    """

    def __init__(
        self,
        run_id: str,
        directory: Path,
        read_gpus: ReadGpus,
        usual_seconds: float | None,
        clock: Callable[[], float] = time.monotonic,
        title: str = "",
    ) -> None:
        self._title = title or run_id
        self._run_id, self._read_gpus, self._usual_seconds, self._clock = run_id, read_gpus, usual_seconds, clock
        self._tailer = EventTailer(run_id, directory)
        self._started = self._drawn = clock()
        # Of each rank, in the present phase.
        self._steps: dict[int, int] = {}
        self._phase: object = None
        # What a search tried last, in words, and when it ends at the latest.
        self._tried: object = None
        self._search_ends: float | None = None
        # Time and number of steps at earlier readings.
        self._seen: deque[tuple[float, int]] = deque()
        self._is_shown, self._text = False, ""

    def draw(self, *, is_at_line_start: bool) -> None:
        """Draw the line, with new figures once a second; not where the run's output has begun a line."""
        if not is_at_line_start:
            return
        is_due = self._clock() - self._drawn >= _DRAW_SECONDS
        if is_due:
            self._drawn, self._text = self._clock(), self.read()
        if self._text and (is_due or not self._is_shown):
            width = shutil.get_terminal_size().columns - 1
            click.echo(f"{_CLEAR}{self._text[:width]}", nl=False, err=True)
            self._is_shown = True

    def clear(self) -> None:
        """Remove the line."""
        if self._is_shown:
            click.echo(_CLEAR, nl=False, err=True)
            self._is_shown = False

    def read(self) -> str:
        """Return the line."""
        now = self._clock()
        elapsed = now - self._started
        parts = [_clock_time(elapsed)]
        for each in self._tailer.read_new():
            self._take(each.table, each.row, now)
        if self._tried:
            parts.append(str(self._tried))
        elif self._steps:
            steps = self._steps[min(self._steps)]
            self._seen.append((now, steps))
            while now - self._seen[0][0] > _RATE_SECONDS and len(self._seen) > 2:
                self._seen.popleft()
            (before, first), seconds = self._seen[0], now - self._seen[0][0]
            rate = f", {(steps - first) / seconds:.3g} steps/s" if now > before and steps > first else ""
            parts.append(f"{counted(steps, _PHASE_STEPS.get(self._phase, 'step'))}{rate}")
        elif self._tailer.digest.phase:
            parts.append(self._tailer.digest.phase)
        if self._usual_seconds is not None and self._usual_seconds > elapsed:
            parts.append(f"about {_clock_time(self._usual_seconds - elapsed)} left")
        elif self._search_ends is not None and self._search_ends > now:
            parts.append(f"up to {_clock_time(self._search_ends - now)} left")
        # Of an agent that ends the run's updates report it.
        with contextlib.suppress(GpuAgentError, RuntimeError):
            parts += _write_gpus(self._read_gpus(self._run_id))
        return f"{self._title}  {' · '.join(parts)}"

    def _take(self, table: str, row: Row, now: float) -> None:
        if table == "steps" and isinstance(rank := row["rank"], int):
            if row["phase"] != self._phase:
                self._phase = row["phase"]
                self._steps.clear()
                self._seen.clear()
            self._steps[rank] = self._steps.get(rank, 0) + 1
        elif table == "run_events" and row["event"] in ("phase", "tried"):
            self._tried = row["name"] if row["event"] == "tried" else None
            left = json.loads(str(row["detail"] or "{}")).get("most_left_seconds")
            self._search_ends = now + left if isinstance(left, float | int) else None


def _write_gpus(gpus: Sequence[GpuNow]) -> list[str]:
    """Return the mean utilisation, the power and the memory of GPUs, as far as they are known; [] for no GPU."""
    if not gpus:
        return []
    busy = [gpu.utilization_percent for gpu in gpus if gpu.HasField("utilization_percent")]
    watts = [gpu.power_watts for gpu in gpus if gpu.HasField("power_watts")]
    used_bytes = [gpu.memory_used_bytes for gpu in gpus if gpu.HasField("memory_used_bytes")]
    figures = [
        *([f"{sum(busy) / len(busy):.0f} %"] if busy else []),
        *([f"{sum(watts):,.0f} W"] if watts else []),
        *([f"{sum(used_bytes) / 1e9:,.1f} GB"] if used_bytes else []),
    ]
    return [f"{'GPU' if len(gpus) == 1 else f'{len(gpus)} GPUs'} {', '.join(figures)}".rstrip()]


def _clock_time(seconds: float) -> str:
    """Return a duration as 0:07, 12:34 or 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"
