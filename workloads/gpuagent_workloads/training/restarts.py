"""The log of an elastic training's steps and restarts, and the cost of restarts, computed from the log alone.

A line is written by one system call as soon as a step is known to be done, so it is there even when the process is
killed right after it. That costs the host a few microseconds a step.
"""

import os
import re
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

import torch

from gpuagent_workloads.report import Reporter

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The time from the last step of an attempt until the next one had done as many steps."""

    # Steps that were done when the attempt before ended.
    last_step: int
    # Steps in the checkpoint.
    resumed_step: int
    # From the last step before to the first step after.
    recovery_seconds: float
    # Done, but not in the checkpoint.
    lost_steps: int
    # From when the steps of the checkpoint were done, and it was written, to the last step before.
    lost_seconds: float
    # From the last step before until as many steps were done as ever before.
    during_seconds: float
    # Work of the ranks in that time, in batches of a rank.
    during_batches: int
    ranks_before: int
    ranks_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The work of a training and its recoveries."""

    steps: int
    # Of ranks; lost ones do not count.
    batches: int
    # From the begin of the first attempt to the last step.
    seconds: float
    restarts: int
    recoveries: Sequence[Recovery]
    checkpoint_seconds: float
    # Until the first restart; None: no step was done before it.
    batches_per_second_before: float | None
    # None: there was no restart.
    batches_per_second_during: float | None
    # From the end of the last recovery; None: nothing was left to do then.
    batches_per_second_after: float | None
    ranks_before: int
    ranks_after: int


def settle(attempts: Sequence[Attempt]) -> Account:
    """Return the account of a training's attempts; the last of them did at least one step."""
    ends = [*(attempt.first for attempt in attempts[1:]), attempts[-1].last]
    working = [attempt for attempt in attempts if attempt.done]
    recoveries, highest, rate_after = [], 0, None
    for before, after in pairwise(working):
        highest = max(highest, before.last)
        ended_unix_nano = before.done[before.last]
        # Its first step that was as far as any before, or its last if it never was.
        back = min(max(highest, after.first + 1), after.last)
        recoveries.append(
            Recovery(
                last_step=before.last,
                resumed_step=after.first,
                recovery_seconds=_seconds(ended_unix_nano, after.done[after.first + 1]),
                lost_steps=before.last - after.first,
                # A checkpoint of the last step was written after it.
                lost_seconds=max(0.0, _seconds(before.left_unix_nano(after.first), ended_unix_nano)),
                during_seconds=_seconds(ended_unix_nano, after.done[back]),
                during_batches=(back - after.first) * after.ranks,
                ranks_before=before.ranks,
                ranks_after=after.ranks,
            )
        )
        rate_after = _rate((after.last - back) * after.ranks, _seconds(after.done[back], after.done[after.last]))
    first, last = attempts[0], attempts[-1]
    return Account(
        steps=last.last,
        batches=sum((end - attempt.first) * attempt.ranks for attempt, end in zip(attempts, ends, strict=True)),
        seconds=_seconds(first.began_unix_nano, last.done[last.last]),
        restarts=len(attempts) - 1,
        recoveries=recoveries,
        checkpoint_seconds=sum(attempt.checkpoint_seconds for attempt in attempts),
        batches_per_second_before=_rate(
            (first.last - first.first) * first.ranks,
            _seconds(first.began_unix_nano, first.done.get(first.last, first.began_unix_nano)),
        ),
        batches_per_second_during=_rate(
            sum(recovery.during_batches for recovery in recoveries),
            sum(recovery.during_seconds for recovery in recoveries),
        ),
        batches_per_second_after=rate_after,
        ranks_before=first.ranks,
        ranks_after=last.ranks,
    )


def report_account(account: Account, items_per_batch: int, unit: str, reporter: Reporter) -> None:
    """Report the cost of restarts, and each recovery as an event.

    Args:
        items_per_batch: items of a rank's batch.
    """
    for recovery in account.recoveries:
        reporter.event("recovery", asdict(recovery))
    reporter.result("restarts", account.restarts)
    reporter.result("checkpoint_seconds", account.checkpoint_seconds, unit="s", phase="measure")
    if not account.recoveries:
        return
    reporter.result("recovery_seconds", sum(r.recovery_seconds for r in account.recoveries), unit="s")
    reporter.result("work_lost_steps", sum(r.lost_steps for r in account.recoveries))
    reporter.result("work_lost_seconds", sum(r.lost_seconds for r in account.recoveries), unit="s")
    reporter.result("ranks_before", account.ranks_before)
    reporter.result("ranks_after", account.ranks_after)
    for part in ("before", "during", "after"):
        rate = getattr(account, f"batches_per_second_{part}")
        if rate is not None:
            reporter.result(f"throughput_{part}", rate * items_per_batch, unit=unit, phase="measure")


def _rate(batches: int, seconds: float) -> float | None:
    return batches / seconds if batches and seconds > 0 else None


def _seconds(began_unix_nano: int, ended_unix_nano: int) -> float:
    return (ended_unix_nano - began_unix_nano) / 1e9
