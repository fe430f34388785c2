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
from typing import TYPE_CHECKING, Any

from gpuagent_report.events import EventsFile, events_path

# The first steps compile, choose kernels and fill caches; they are not measured.
WARMUP_STEPS = 5

# An interval with a checkpoint or a validation in it is a gap, no step, if it is this much longer than the usual step.
GAP_RATIO = 2.0

_FLUSH_NANO = 1_000_000_000
# A CUDA event costs the host 10 µs, so that short steps share one.
_MARK_NANO = 20_000_000
_MARK_STEPS = 100
# So that a line stays below the 64 KiB that the agent reads.
_FLUSH_STEPS = 400
# The number of steps of which the median is the usual time.
_USUAL_STEPS = 101
_MEMORY_NANO = 30_000_000_000


if TYPE_CHECKING:
    # The end of a step: its time by time.perf_counter_ns, its items, its CUDA event, a checkpoint or validation that
    # was seen since the step before, and the time in which it waited for data. A tuple, since each step makes one.
    End = tuple[int, float | None, Any, str | None, int]


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
        self._flush_at_nano = self._memory_at_nano = self._mark_at_nano = 0
        self._usual: deque[Any] = deque(maxlen=_USUAL_STEPS)
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
        if self.file is None and not self.open(nano):
            return
        mark = None
        if self._cuda:
            if self._cuda.is_current_stream_capturing():
                return  # a CUDA graph is recorded: nothing runs now
            waiting = len(self._ended)
            if nano >= self._mark_at_nano or self._count + waiting <= WARMUP_STEPS or waiting % _MARK_STEPS == 0:
                self._mark_at_nano = nano + _MARK_NANO
                mark = self._cuda_mark()
        items = items if self._items_per_step is None else self._items_per_step
        self._ended.append((nano, items, mark, reason, waited_nano))
        if nano >= self._flush_at_nano or len(self._ended) % _FLUSH_STEPS == 0:
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
        self._find_cuda()
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
        while count and not is_last and not self._has_passed(self._ended[count - 1][2]):
            count -= 1
        done, self._ended = self._ended[:count], self._ended[count:]
        now_nano = time.perf_counter_ns()
        self._flush_at_nano = now_nano + _FLUSH_NANO
        self._find_cuda()
        if self._count < WARMUP_STEPS:
            split = WARMUP_STEPS - self._count
            self._write_steps("warmup", done[:split])
            done = done[split:]
        for at in range(0, len(done), _FLUSH_STEPS):
            self._write_steps("measure", done[at : at + _FLUSH_STEPS])
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
            self.write("phase", self._previous[0], name="teardown")
        self.write("phase", name="end")
        self.file.close()
        self.file, self.is_silent = None, True

    def forget(self) -> None:
        """Begin anew in a child made by fork, which has the parent's open file."""
        import ctypes  # torch has imported it already

        # CUDA events are never freed there: that ends the process.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object((self._ended, self._previous, self._free_marks)))
        self.__init__(self._directory, self.found_by)  # type: ignore[misc]

    def _find_cuda(self) -> None:
        """Record CUDA events from now on if the program uses CUDA. Nothing here initialises it."""
        torch = sys.modules.get("torch")
        if self._cuda is None and torch is not None and torch.cuda.is_initialized():
            self._cuda = torch.cuda

    def _cuda_mark(self) -> Any:
        """Return a CUDA event at this point of the current stream; None: there cannot be one."""
        try:
            mark = self._free_marks.pop() if self._free_marks else self._cuda.Event(enable_timing=True)
            mark.record()
        except RuntimeError:  # such as of a stream of another device
            self._cuda = False
            return None
        return mark

    def _has_passed(self, mark: Any) -> bool:
        """Return whether the device has done what came before a CUDA event; without a GPU everything has been done."""
        return not self._cuda or (mark is not None and bool(mark.query()))

    def _gpu_nano(self, steps: list[End]) -> list[int | None] | None:
        """Return the device's time of each step, the mean of those between two CUDA events; None: there are none."""
        found: list[int | None] = [None] * len(steps)
        last, mark = -1, self._previous[2] if self._previous else None
        for index, end in enumerate(steps):
            if end[2] is None:
                continue
            if mark is not None:
                with contextlib.suppress(RuntimeError):  # at the very end the device may not have passed it
                    each = int(mark.elapsed_time(end[2]) * 1e6 / (index - last))
                    found[last + 1 : index + 1] = [each] * (index - last)
                self._free_marks.append(mark)
            last, mark = index, end[2]
        return found if any(nano is not None for nano in found) else None

    def _write_steps(self, phase: str, steps: list[End]) -> None:
        if not steps:
            return
        first = self._count if phase == "warmup" else self._count - WARMUP_STEPS
        if first == 0:
            self.write("phase", (self._previous or steps[0])[0], name=phase)
            if phase == "warmup":
                self._describe()
        before = self._previous
        wall = [steps[0][0] - before[0] if before else None]
        wall += [end[0] - earlier[0] for earlier, end in zip(steps, steps[1:])]  # noqa: B905, RUF007 - Python 3.8
        gpu = self._gpu_nano(steps)
        self._usual.extend(wall[-_USUAL_STEPS:] if wall[0] is not None else wall[1:])
        gaps = []
        for index, (nano, _, _, reason, _) in enumerate(steps):
            took = wall[index]
            if reason and took is not None and took > GAP_RATIO * statistics.median(self._usual):
                self.write("gap", nano, name=reason, seconds=took / 1e9, step=first + index)
                gaps.append(index)
                if gpu:  # the steps that share its CUDA events have their wall time only
                    shared = gpu[index]
                    gpu = [None if each == shared else each for each in gpu]
        items = [end[1] for end in steps]
        is_even = items.count(items[0]) == len(items)
        waited_nano = sum(end[4] for index, end in enumerate(steps) if index not in gaps)
        self.write(
            "steps",
            steps[-1][0],
            phase=phase,
            step=first,
            wall_nano=wall,
            gpu_nano=gpu,
            items=items[0] if is_even else items,
            gaps=gaps or None,
            data_wait_seconds=waited_nano / 1e9 if waited_nano else None,
        )
        self._previous = steps[-1]
        self._count += len(steps)

    def _describe(self) -> None:
        """Report the GPU and what a step's wall time means."""
        self.write("result", name="step_timing", value="enqueue" if self._cuda else "synchronised")
        if self._cuda:
            properties = self._cuda.get_device_properties(self._cuda.current_device())
            uuid = getattr(properties, "uuid", None)
            if uuid is not None:
                kind = "MIG" if " MIG " in properties.name else "GPU"
                self.write("device", uuid=f"{kind}-{uuid}", pid=os.getpid())
