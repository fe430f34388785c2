"""The steps of a training, timed by its own process without disturbing it.

A step lasts from the end of the one before to its own end, so that waiting for data belongs to it. With a GPU, CUDA
events are recorded at the ends and read only once the device has passed them; nothing waits for the device.
"""

from __future__ import annotations

import contextlib
import json
import operator
import os
import statistics
import sys
import time
from collections import deque
from typing import Any

# Ranks as torchrun, Open MPI, PMI and Slurm number them.
_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


class EventsFile:
    """A file to which one process appends events, each by one system call."""

    def __init__(self, path: str) -> None:
        """Create the file.

        Raises:
            FileExistsError: another process, or another part of this one, reports for this rank.
            OSError: it cannot be created.
        """
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def write(self, event: str, unix_nano: int, **fields: Any) -> None:
        """Append an event; fields that are None are left out. Raises ValueError if a number is NaN or infinite."""
        present = {name: value for name, value in fields.items() if value is not None}
        line = json.dumps({"t": unix_nano, "event": event, **present}, allow_nan=False)
        os.write(self._descriptor, line.encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def events_path(directory: str) -> str:
    """Return the path of this process's events file in a run directory."""
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
    # The number of this process among those that train together; 0 if it trains alone.
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        rank = int(distributed.get_rank())
    else:
        rank = next((int(os.environ[name]) for name in _RANKS if os.environ.get(name, "").isdecimal()), 0)
    return os.path.join(directory, f"events.{rank}.{restart if restart.isdecimal() else 0}.jsonl")


# The first steps compile, choose kernels and fill caches; they are not measured.
WARMUP_STEPS = 5

# An interval with a checkpoint or a validation in it is a gap, no step, if it is this much longer than the usual step.
GAP_RATIO = 2.0

# What not every step needs: a CUDA event, which costs the host 11 µs, and looking at what is due.
_LOOK_NANO = 100_000_000
_FLUSH_NANO = 1_000_000_000
# So that a line stays below the 64 KiB that the agent reads.
_LINE_STEPS = 400
# The number of steps of which the median is the usual time.
_USUAL_STEPS = 101
_MEMORY_NANO = 30_000_000_000


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
        # Three values for each step that is not written yet: its end by time.perf_counter_ns, its items, its wait for
        # data in ns. One list of numbers: a step touches little memory, and the garbage collector has nothing to do.
        self._noted: list[Any] = []
        # By number of a step, counted from the first: its CUDA event, and the checkpoint or validation before its end.
        self._marks: dict[int, Any] = {}
        self._reasons: dict[int, str] = {}
        # Of the steps that are written: their number, the end of the last, and the last CUDA event.
        self._count = 0
        self._last_nano: int | None = None
        self._last_mark: Any = None
        self._look_at_nano = self._flush_at_nano = self._memory_at_nano = 0
        self._usual: deque[int] = deque(maxlen=_USUAL_STEPS)
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
        if nano >= self._look_at_nano and not self._look(nano):
            return
        if reason:
            self._reasons[self._count + len(self._noted) // 3] = reason
        self._noted.extend((nano, items, waited_nano))

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
            self.write("found", name=self.found_by, items_per_step=self._items_per_step)
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
        now_nano = time.perf_counter_ns()
        self._flush_at_nano = now_nano + _FLUSH_NANO
        count = len(self._noted) // 3
        if self._cuda and not is_last:
            passed = (number for number in reversed(list(self._marks)) if self._marks[number].query())
            count = next(passed, self._count - 1) + 1 - self._count
        if count:
            self._write_steps(count)
        self._find_cuda()
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
        if self._last_nano is not None:
            self.write("phase", self._last_nano, name="teardown")
        self.write("phase", name="end")
        self.file.close()
        self.file, self.is_silent = None, True

    def forget(self) -> None:
        """Begin anew in a child made by fork, which has the parent's open file."""
        import ctypes  # torch has imported it already

        # CUDA events are never freed there: that ends the process.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object((self._marks, self._last_mark, self._free_marks)))
        self.__init__(self._directory, self.found_by)  # type: ignore[misc]

    def _look(self, nano: int) -> bool:
        """Do what is due before a step that ends at `nano` is noted; return False if it is not to be noted."""
        if self.file is None and not self.open(nano):
            return False
        if self._cuda and self._cuda.is_current_stream_capturing():
            return False  # a CUDA graph is recorded: nothing runs now
        if nano >= self._flush_at_nano or len(self._noted) >= 3 * _LINE_STEPS:
            self.flush()
        number = self._count + len(self._noted) // 3
        if self._cuda:
            try:
                mark = self._free_marks.pop() if self._free_marks else self._cuda.Event(enable_timing=True)
                mark.record()
                self._marks[number] = mark
            except RuntimeError:  # such as of a stream of another device
                self._cuda = False
        # Each step of the warm-up has an event, and so the first one after it has its own time.
        if number >= WARMUP_STEPS:
            self._look_at_nano = nano + _LOOK_NANO
        return True

    def _find_cuda(self) -> None:
        """Record CUDA events from now on if the program uses CUDA. Nothing here initialises it."""
        torch = sys.modules.get("torch")
        if self._cuda is None and torch is not None and torch.cuda.is_initialized():
            self._cuda = torch.cuda

    def _write_steps(self, count: int) -> None:
        """Write the first `count` steps of those that are noted."""
        noted, self._noted = self._noted[: 3 * count], self._noted[3 * count :]
        ends, waits = noted[0::3], noted[2::3]
        items = noted[1::3] if self._items_per_step is None else [self._items_per_step] * count
        start_nano = ends[0] if self._last_nano is None else self._last_nano
        wall: list[int | None] = list(map(operator.sub, ends, [start_nano, *ends]))
        if self._last_nano is None:
            wall[0] = None
        # The device's time of each of the first steps: the mean of those between two CUDA events.
        gpu: list[int | None] = [None] * count
        first = 0
        for number in [number for number in self._marks if number < self._count + count]:
            mark, end = self._marks.pop(number), number + 1 - self._count
            if self._last_mark is not None:
                with contextlib.suppress(RuntimeError):  # at the very end the device may not have passed it
                    each = int(self._last_mark.elapsed_time(mark) * 1e6 / (end - first))
                    gpu[first:end] = [each] * (end - first)
                self._free_marks.append(self._last_mark)
            first, self._last_mark = end, mark
        gaps = self._take_gaps(wall)
        for index in gaps:
            waits[index] = 0
            shared = gpu[index]  # the steps that share its CUDA events have their wall time only
            gpu = [None if each == shared else each for each in gpu]
        at = 0
        while at < count:
            phase, before = ("warmup", 0) if self._count < WARMUP_STEPS else ("measure", WARMUP_STEPS)
            first = self._count - before
            to = min(count, at + (_LINE_STEPS if before else WARMUP_STEPS - first))
            if first == 0:
                self.write("phase", start_nano, name=phase)
                if phase == "warmup":
                    self._describe()
            for index in (index for index in gaps if at <= index < to):
                self.write("gap", ends[index], name=gaps[index], seconds=wall[index] / 1e9, step=first + index - at)  # type: ignore[operator]
            self.write(
                "steps",
                ends[to - 1],
                phase=phase,
                step=first,
                wall_nano=wall[at:to],
                gpu_nano=None if gpu[at:to].count(None) == to - at else gpu[at:to],
                items=items[at] if items[at:to].count(items[at]) == to - at else items[at:to],
                gaps=[index - at for index in gaps if at <= index < to] or None,
                data_wait_seconds=sum(waits[at:to]) / 1e9 or None,
            )
            start_nano = self._last_nano = ends[to - 1]
            self._count += to - at
            at = to

    def _take_gaps(self, wall: list[int | None]) -> dict[int, str]:
        """Return the reasons of those of the first steps that took much longer than usual, by position."""
        self._usual.extend(took for took in wall[-_USUAL_STEPS:] if took is not None)
        gaps = {}
        reasons = [number for number in self._reasons if number < self._count + len(wall)]
        longest = GAP_RATIO * statistics.median(self._usual) if reasons and self._usual else 0
        for number in reasons:
            reason, took = self._reasons.pop(number), wall[number - self._count]
            if took is not None and took > longest:
                gaps[number - self._count] = reason
        return gaps

    def _describe(self) -> None:
        """Report the GPU and what a step's wall time means."""
        if not self._cuda and "keras" in sys.modules:
            return  # its GPU, if it has one, is not known here
        self.write("result", name="step_timing", value="enqueue" if self._cuda else "synchronised")
        if self._cuda:
            properties = self._cuda.get_device_properties(self._cuda.current_device())
            uuid = getattr(properties, "uuid", None)
            if uuid is not None:
                kind = "MIG" if " MIG " in properties.name else "GPU"
                self.write("device", uuid=f"{kind}-{uuid}", pid=os.getpid())
