"""The steps of a training, timed by its own process without disturbing it.

A step lasts from the end of the one before to its own end, so that waiting for data belongs to it. With a GPU, CUDA
events are recorded at the ends and read only once the device has passed them; nothing waits for the device.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import time
from collections import deque
from typing import Any, NamedTuple

from gpuagent_report.events import EventsFile, events_path

# The first steps compile, choose kernels and fill caches; they are not measured.
WARMUP_STEPS = 5

# An interval with a checkpoint or a validation in it is a gap, no step, if it is this much longer than the usual step.
GAP_RATIO = 2.0

_FLUSH_NANO = 1_000_000_000
# So that a line stays below the 64 KiB that the agent reads.
_FLUSH_STEPS = 400
_MEMORY_NANO = 30_000_000_000


class End(NamedTuple):
    """The end of a step."""

    nano: int  # by time.perf_counter_ns
    items: float | None
    mark: Any  # the CUDA event; None: no GPU is used
    reason: str | None  # checkpoint or validation, if that was seen since the step before


class StepRecorder:
    """A recorder of one process's steps. The first process of a rank that ends a step reports; others stay silent."""

    def __init__(self, directory: str | None, found_by: str | None = None) -> None:
        """Take notes.

        Args:
            directory: the run directory; None: no run, so nothing is written.
            found_by: the source of the steps, if the program does not report them itself.
        """
        self._directory = directory
        self.found_by = found_by
        self._begun_nano = time.perf_counter_ns()
        # None: no step has ended yet, or nothing is to be written.
        self.file: EventsFile | None = None
        self.is_silent = not directory
        self._pid = os.getpid()
        self._ended: list[End] = []
        self._previous: End | None = None
        self._count = 0
        self._flush_at_nano = self._memory_at_nano = 0
        self._usual: deque[float] = deque(maxlen=101)
        self._waited_nano = 0
        given = os.environ.get("GPUAGENT_ITEMS_PER_STEP")
        self._items_per_step = float(given) if given else None
        self._cuda: Any = None
        self._free_marks: list[Any] = []

    def end_step(self, items: float | None = None, reason: str | None = None, waited_nano: int = 0) -> None:
        """Record that a step has ended.

        Args:
            items: samples or tokens of the step; None: not known.
            reason: checkpoint or validation, if that was seen since the step before.
            waited_nano: the time in which it waited for data.
        """
        if self.is_silent:
            return
        nano = time.perf_counter_ns()
        mark = self._cuda_mark()
        if mark is False:
            return  # a CUDA graph is captured: nothing runs now
        if self.file is None and not self.open(nano):
            return
        self._ended.append(End(nano, items if self._items_per_step is None else self._items_per_step, mark, reason))
        self._waited_nano += waited_nano
        if nano >= self._flush_at_nano or len(self._ended) >= _FLUSH_STEPS:
            self.flush()

    def open(self, nano: int | None = None) -> bool:
        """Begin the events file; return False if another process reports for this rank."""
        if self.is_silent:
            return False
        try:
            self.file = EventsFile(events_path(str(self._directory)))
        except OSError:
            self.is_silent = True
            return False
        now_nano = time.perf_counter_ns() if nano is None else nano
        if self.found_by:
            self.write("found", name=self.found_by)
        self.write("phase", self._begun_nano, name="setup")
        self._flush_at_nano, self._memory_at_nano = now_nano + _FLUSH_NANO, now_nano + _FLUSH_NANO
        return True

    def write(self, event: str, nano: int | None = None, **fields: Any) -> None:
        """Write an event that happened now, or at `nano` of time.perf_counter_ns."""
        if self.file is not None:
            shift_nano = time.time_ns() - time.perf_counter_ns()
            self.file.write(event, (time.perf_counter_ns() if nano is None else nano) + shift_nano, **fields)

    def flush(self, *, is_last: bool = False) -> None:
        """Write the steps that the device has completed; the last time all that the host has ended."""
        count = len(self._ended)
        while (
            count
            and not is_last
            and self._ended[count - 1].mark is not None
            and not self._ended[count - 1].mark.query()
        ):
            count -= 1
        done, self._ended = self._ended[:count], self._ended[count:]
        now_nano = time.perf_counter_ns()
        self._flush_at_nano = now_nano + _FLUSH_NANO
        if self._count < WARMUP_STEPS:
            split = WARMUP_STEPS - self._count
            self._write_steps("warmup", done[:split])
            done = done[split:]
        self._write_steps("measure", done)
        if self._cuda and (is_last or now_nano >= self._memory_at_nano):
            self._memory_at_nano = now_nano + _MEMORY_NANO
            for kind in ("allocated", "reserved"):
                peak = getattr(self._cuda, f"max_memory_{kind}")()
                self.write("result", name=f"peak_memory_{kind}", value=peak, unit="bytes")

    def finish(self) -> None:
        """Write everything and close the file; other processes that come from this one by fork write nothing."""
        if self.file is None or os.getpid() != self._pid:
            return
        with contextlib.suppress(Exception):  # a CUDA context may be gone at the end of a program
            self.flush(is_last=True)
        if self._previous is not None:
            self.write("phase", self._previous.nano, name="teardown")
        self.write("phase", name="end")
        self.file.close()
        self.file, self.is_silent = None, True

    def forget(self) -> None:
        """Begin anew in a child made by fork, which has the parent's open file."""
        self.__init__(self._directory, self.found_by)  # type: ignore[misc]

    def _cuda_mark(self) -> Any:
        """Return a CUDA event at this point of the current stream; None: no GPU; False: a graph is captured."""
        if self._cuda is None:
            torch = sys.modules.get("torch")
            if torch is None or not torch.cuda.is_initialized():
                return None
            self._cuda = torch.cuda
        if self._cuda is False:
            return None
        if self._cuda.is_current_stream_capturing():
            return False
        try:
            mark = self._free_marks.pop() if self._free_marks else self._cuda.Event(enable_timing=True)
            mark.record()
        except RuntimeError:  # such as of a stream of another device
            self._cuda = False
            return None
        return mark

    def _write_steps(self, phase: str, steps: list[End]) -> None:
        if not steps:
            return
        first = self._count if phase == "warmup" else self._count - WARMUP_STEPS
        if first == 0:
            began = steps[0] if self._previous is None else self._previous
            self.write("phase", began.nano, name=phase)
            if phase == "warmup":
                self._describe()
        wall: list[float | None] = []
        gpu: list[float | None] = []
        for end in steps:
            before, self._previous = self._previous, end
            wall.append(None if before is None else (end.nano - before.nano) / 1e9)
            gpu.append(_elapsed_seconds(before, end))
            if before is not None and before.mark is not None:
                self._free_marks.append(before.mark)
        self._usual.extend(seconds for seconds in wall if seconds is not None)
        for index, end in enumerate(steps):
            seconds = wall[index]
            if end.reason and seconds is not None and seconds > GAP_RATIO * statistics.median(self._usual):
                self.write("gap", end.nano, name=end.reason, seconds=seconds, step=first + index)
                wall[index] = gpu[index] = None
        shift_nano = time.time_ns() - time.perf_counter_ns()
        self.write(
            "steps",
            steps[-1].nano,
            phase=phase,
            step=first,
            ended_unix_nano=[end.nano + shift_nano for end in steps],
            wall_seconds=wall,
            gpu_seconds=gpu if any(seconds is not None for seconds in gpu) else None,
            items=[end.items for end in steps] if any(end.items is not None for end in steps) else None,
            data_wait_seconds=self._waited_nano / 1e9 if self._waited_nano else None,
        )
        self._count += len(steps)
        self._waited_nano = 0

    def _describe(self) -> None:
        """Report the GPU and what a step's wall time means."""
        self.write("result", name="step_timing", value="enqueue" if self._cuda else "synchronised")
        if self._cuda:
            properties = self._cuda.get_device_properties(self._cuda.current_device())
            uuid = getattr(properties, "uuid", None)
            if uuid is not None:
                kind = "MIG" if " MIG " in properties.name else "GPU"
                self.write("device", uuid=f"{kind}-{uuid}", pid=os.getpid())


def _has_passed(mark: Any) -> bool:
    """Return whether the device has done what came before a CUDA event; None is no event."""
    return mark is None or bool(mark.query())


def _elapsed_seconds(before: End | None, end: End) -> float | None:
    """Return the device's time between two ends; None: not both are marked, or not both have passed."""
    if before is None or before.mark is None or end.mark is None:
        return None
    try:
        return float(before.mark.elapsed_time(end.mark)) / 1e3
    except RuntimeError:
        return None
