"""The log of an elastic training's steps and restarts.

A line is written by one system call as soon as a step is known to be done, so it is there even when the process is
killed right after it. That costs the host a few microseconds a step.
"""

import os
import re
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

# Not anchored to the begin of a line: the first line of an attempt may follow one that a full disk truncated.
_LINE = re.compile(r"(start|step|checkpoint) (\d+) (\d+) ([\d.]+)\n")


@dataclass(slots=True, kw_only=True)
class Attempt:
    """The steps of one start of the ranks, by rank 0's clock, in nanoseconds since the Unix epoch."""

    # The number of steps done before it.
    first: int
    began_unix_nano: int
    ranks: int
    # The time of each of its steps, by the number of steps then done.
    done: dict[int, int] = field(default_factory=dict)
    # The time of each checkpoint, by the number of steps then done.
    saved: dict[int, int] = field(default_factory=dict)
    # Spent on writing checkpoints.
    checkpoint_seconds: float = 0.0

    @property
    def last(self) -> int:
        """The number of steps done after it."""
        return max(self.done, default=self.first)

    def left_unix_nano(self, step: int) -> int:
        """Return the time when it had done, begun or saved that number of steps, whichever was last."""
        began = {self.first: self.began_unix_nano}
        return max(times[step] for times in (began, self.done, self.saved) if step in times)


class StepLog:
    """The writer of this attempt's log, after those of earlier attempts."""

    def __init__(self, path: Path, device: torch.device, *, ranks: int, goes_on: bool) -> None:
        """Open the log.

        Args:
            path: of the file.
            device: where the steps run.
            ranks: the number of ranks.
            goes_on: whether it continues earlier attempts; if not, the file is of another training.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (0 if goes_on else os.O_TRUNC)
        self._file = os.open(path, flags, 0o644)
        self._on_gpu, self._ranks = device.type == "cuda", ranks
        self._under_way: deque[tuple[int, torch.cuda.Event]] = deque()

    def start(self, step: int) -> None:
        """Record that the next step is the one after `step`."""
        self._write("start", step, self._ranks)

    def step(self, step: int) -> None:
        """Record that `step` steps were taken, once they are done: on a GPU that shows after some later step."""
        if not self._on_gpu:
            self._write("step", step, self._ranks)
            return
        mark = torch.cuda.Event()
        mark.record()
        self._under_way.append((step, mark))
        while self._under_way and self._under_way[0][1].query():
            self._write("step", self._under_way.popleft()[0], self._ranks)

    def catch_up(self) -> None:
        """Wait until the device has done all steps, and record that."""
        while self._under_way:
            step, mark = self._under_way.popleft()
            mark.synchronize()
            self._write("step", step, self._ranks)

    def checkpoint(self, step: int, seconds: float) -> None:
        """Record that a checkpoint after `step` steps was written in that time."""
        self._write("checkpoint", step, f"{seconds:.6f}")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _write(self, kind: str, step: int, value: int | str) -> None:
        os.write(self._file, f"{kind} {step} {time.time_ns()} {value}\n".encode("ascii"))


def read_log(path: Path) -> Sequence[Attempt]:
    """Return the attempts in a log. Lines that a full disk truncated are skipped."""
    attempts: list[Attempt] = []
    for parts in _LINE.finditer(path.read_text(encoding="ascii")):
        step, unix_nano, value = int(parts[2]), int(parts[3]), float(parts[4])
        match parts[1]:
            case "start":
                attempts.append(Attempt(first=step, began_unix_nano=unix_nano, ranks=int(value)))
            case "step":
                attempts[-1].done[step] = unix_nano
            case "checkpoint":
                attempts[-1].saved[step] = unix_nano
                attempts[-1].checkpoint_seconds += value
    return attempts
