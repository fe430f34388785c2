"""Timing of single calls: by CUDA events that are read later on a GPU, by the host's clock on a CPU."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

# Does something on the device; on a GPU it may return before that is done.
Work = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The times of one call, or of one training step."""

    ended_at_unix_nano: int
    # On a GPU only until the host has enqueued the work.
    wall_seconds: float
    # Between the CUDA events before and after it. None: on a CPU.
    gpu_seconds: float | None

    @property
    def device_seconds(self) -> float:
        """The time that the device spent on it."""
        return self.wall_seconds if self.gpu_seconds is None else self.gpu_seconds


def time_calls(
    work: Work, device: torch.device, is_enough: Callable[[int, float], bool], between: Work = lambda: None
) -> list[Call]:
    """Call `work` until `is_enough(calls made, seconds since the first)`, with an idle device at the start and the end.

    Args:
        is_enough: asked before each call.
        between: called before each call, and not timed.
    """
    marks: list[torch.cuda.Event] = []
    spans: list[tuple[int, int]] = []

    def mark() -> None:
        if device.type == "cuda":
            marks.append(torch.cuda.Event(enable_timing=True))
            marks[-1].record()

    synchronize(device)
    began_at_unix_nano, began_nano = time.time_ns(), time.perf_counter_ns()
    while not is_enough(len(spans), (time.perf_counter_ns() - began_nano) / 1e9):
        between()
        mark()
        called_nano = time.perf_counter_ns()
        work()
        spans.append((called_nano, time.perf_counter_ns()))
        mark()
    synchronize(device)
    return [
        Call(
            ended_at_unix_nano=began_at_unix_nano + ended_nano - began_nano,
            wall_seconds=(ended_nano - called_nano) / 1e9,
            gpu_seconds=marks[2 * number].elapsed_time(marks[2 * number + 1]) / 1e3 if marks else None,
        )
        for number, (called_nano, ended_nano) in enumerate(spans)
    ]


def median_seconds(work: Work, device: torch.device, repeats: int, budget_seconds: float = 2.0) -> float:
    """Return the median of the device's time for `work`, after a warm-up.

    Args:
        budget_seconds: limits the calls to what fits into it, but to no fewer than three.
    """
    time_calls(work, device, lambda count, _seconds: count == 2)
    began_seconds = time.perf_counter()
    time_calls(work, device, lambda made, _seconds: made == 1)
    repeats = max(3, min(repeats, int(budget_seconds / (time.perf_counter() - began_seconds))))
    calls = time_calls(work, device, lambda made, _seconds: made == repeats)
    return statistics.median(call.device_seconds for call in calls)


def synchronize(device: torch.device) -> None:
    """Wait until the device has done everything."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
