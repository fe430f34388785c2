"""The report of a run's phases, steps and figures through its run directory; see docs/run-directory.md.

Any Python program can use it:

    with Reporter.from_environment() as reporter:
        reporter.phase("measure")
        for batch in batches:
            started = time.perf_counter()
            train(batch)
            reporter.step(wall_seconds=time.perf_counter() - started, items=len(batch))
        reporter.phase("teardown")
        reporter.result("accuracy", 98.7, unit="%")
"""

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from gpuagent_common.errors import MisuseError
from gpuagent_workloads.errors import NonFiniteError

PHASES = ("prepare", "setup", "warmup", "measure", "teardown", "counters", "end")

# Phases in which nothing is written before they end, so that reporting does not disturb the timing.
TIMED_PHASES = ("warmup", "measure")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A figure or a text about a whole run, or one phase of it."""

    name: str
    value: float | str
    # None: a plain number or a text.
    unit: str | None
    # None: the whole run.
    phase: str | None


class Reporter:
    """A writer of one rank's events. As a context manager it announces the phase `end` on exit."""

    def __init__(
        self,
        events: Path | None,
        *,
        rank: int = 0,
        on_phase: Callable[[str], None] = lambda _name: None,
        now_unix_nano: Callable[[], int] = time.time_ns,
    ) -> None:
        """Open the file.

        Args:
            events: the file to append to; None: results are only kept, in `results`.
            rank: number of this process among those of the run.
            on_phase: called with the name of each phase as it begins.
            now_unix_nano: the wall clock.
        """
        self.rank = rank
        # The run directory, for files that are kept with the run; None: there is none.
        self.directory = events.parent if events else None
        self.results: list[Result] = []
        self._file = events.open("a", encoding="utf-8") if events else None
        self._waiting: list[dict[str, Any]] = []
        self._phase: str | None = None
        self._steps = 0
        self._on_phase = on_phase
        self._now_unix_nano = now_unix_nano
        self._started_seconds = time.perf_counter()

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str] = os.environ, *, on_phase: Callable[[str], None] = lambda _name: None
    ) -> "Reporter":
        """Return a reporter to the run directory in GPUAGENT_RUN_DIR, or to nowhere when that is not set.

        RANK and TORCHELASTIC_RESTART_COUNT, as torchrun sets them, are 0 when they are not set. Raises MisuseError:
        GPUAGENT_RUN_DIR is not a directory, or one of the others is not a number.
        """
        rank = number_in(environment, "RANK", 0)
        directory = environment.get("GPUAGENT_RUN_DIR")
        if not directory:
            return cls(None, rank=rank, on_phase=on_phase)
        if not Path(directory).is_dir():
            raise MisuseError(f"GPUAGENT_RUN_DIR is {directory}, not a directory: create it or unset the variable")
        restart = number_in(environment, "TORCHELASTIC_RESTART_COUNT", 0)
        return cls(Path(directory, f"events.{rank}.{restart}.jsonl"), rank=rank, on_phase=on_phase)

    def phase(self, name: str, *, at_unix_nano: int | None = None, first_step: int = 0) -> None:
        """Report that phase `name` begins, and the one before it ends, now or at `at_unix_nano`.

        `first_step` is the number of its first step, for a program that continues another one.
        """
        if name not in PHASES:
            raise ValueError(f"{name} is not one of the phases {', '.join(PHASES)}")
        self.flush()
        if name == "counters":
            # What is counted from here on describes the run, which ends here.
            ended_unix_nano = self._now_unix_nano()
            self._now_unix_nano = lambda: ended_unix_nano
        self._phase = name
        self._steps = first_step
        self._add({"event": "phase", "name": name}, at_unix_nano)
        self.flush()
        self._on_phase(name)

    def step(
        self, *, wall_seconds: float, items: float, gpu_seconds: float | None = None, at_unix_nano: int | None = None
    ) -> None:
        """Report the next step of this phase.

        Args:
            gpu_seconds: its time on the GPU; None without GPU.
            at_unix_nano: its end; None: now.

        Raises:
            NonFiniteError: a figure is NaN or infinite.
        """
        figures = {"wall_seconds": wall_seconds, "gpu_seconds": gpu_seconds, "items": items}
        present = {name: _finite(name, value) for name, value in figures.items() if value is not None}
        self._add({"event": "step", "phase": self._phase, "step": self._steps, **present}, at_unix_nano)
        self._steps += 1

    def result(self, name: str, value: float | str, *, unit: str | None = None, phase: str | None = None) -> None:
        """Report a figure or a text of the whole run, or of one phase of it.

        Raises NonFiniteError: the value is NaN or infinite.
        """
        result = Result(name=name, value=_finite(name, value), unit=unit, phase=phase)
        self.results.append(result)
        optional = {"unit": unit, "phase": phase}
        present = {key: text for key, text in optional.items() if text is not None}
        self._add({"event": "result", "name": name, "value": result.value, **present})

    def metric(self, name: str, value: float, *, step: int) -> None:
        """Report a figure of one step, such as the loss. Raises NonFiniteError where the value is NaN or infinite."""
        self._add({"event": "metric", "name": name, "step": step, "value": _finite(f"{name} at step {step}", value)})

    def op(self, *, kind: str, name: str, calls: int, steps: int, **seconds: float | None) -> None:
        """Report the profile of one operator or kernel: the sum of its calls in the traced steps.

        Args:
            kind: operator, kernel, memcpy or memset.
            name: of the operator or kernel; at most some thousand characters.
            seconds: cpu_seconds and gpu_seconds with its callees, cpu_self_seconds and gpu_self_seconds without them;
                None: does not apply.

        Raises:
            NonFiniteError: a figure is NaN or infinite.
        """
        present = {figure: _finite(figure, value) for figure, value in seconds.items() if value is not None}
        self._add({"event": "op", "kind": kind, "name": name, "calls": calls, "steps": steps, **present})

    def event(self, event: str, figures: Mapping[str, float | str]) -> None:
        """Report another event, such as a recovery, with its figures, and its name if it has one.

        Raises NonFiniteError: a figure is NaN or infinite.
        """
        self._add({"event": event, **{name: _finite(name, value) for name, value in figures.items()}})

    def device(self, uuid: str) -> None:
        """Report that this process uses the GPU with that UUID (`GPU-…`, as `nvidia-smi -L` prints it)."""
        self._add({"event": "device", "uuid": uuid, "pid": os.getpid()})

    def elapsed_seconds(self) -> float:
        """Return the seconds since this reporter was made."""
        return time.perf_counter() - self._started_seconds

    def flush(self) -> None:
        """Write waiting events. Only needed in long timed phases, while nothing is timed."""
        if self._file:
            self._file.write("".join(json.dumps(event, allow_nan=False) + "\n" for event in self._waiting))
            self._file.flush()
        self._waiting.clear()

    def __enter__(self) -> "Reporter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.phase("end")
        finally:
            if self._file:
                self._file.close()

    def _add(self, event: dict[str, Any], at_unix_nano: int | None = None) -> None:
        self._waiting.append({"t": self._now_unix_nano() if at_unix_nano is None else at_unix_nano, **event})
        if self._phase not in TIMED_PHASES:
            self.flush()


def _finite(name: str, value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise NonFiniteError(f"{name} is {value}: the run has failed, since such a figure is meaningless")
    return value


def number_in(environment: Mapping[str, str], name: str, default: int) -> int:
    """Return the number in a variable of torchrun, or `default` when it is not set.

    Raises MisuseError: it is not a number.
    """
    text = environment.get(name) or str(default)
    if not text.isdecimal():
        raise MisuseError(f"{name} is {text!r}, not a number: unset it or start through torchrun")
    return int(text)
