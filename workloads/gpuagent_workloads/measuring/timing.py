"""Times calls one by one: by CUDA events that are read later on a GPU, by the host's clock on a CPU."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

# Does something on the device; on a GPU it may return before that is done.
Work = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """How long a call took."""

    ended_at_unix_nano: int
    # On a GPU only until the work was handed over.
    wall_seconds: float
    # Between the CUDA events before and after it. None: on a CPU.
    gpu_seconds: float | None

    @property
    def device_seconds(self) -> float:
        """The time that the device spent on it."""
        return self.wall_seconds if self.gpu_seconds is None else self.gpu_seconds


def time_calls(
    work: Work,
    device: torch.device,
    is_enough: Callable[[int, float], bool],
    between: Work = lambda: None,
) -> list[Call]:
    """Call `work` until `is_enough(calls made, seconds since the first)`, with the device idle at first and at last.

    Args:
        work: what is timed.
        device: where it runs.
        is_enough: asked before each call.
        between: done before each call, and not timed.
    """
    watch = _GpuWatch() if device.type == "cuda" else _CpuWatch()
    spans: list[tuple[int, int]] = []
    synchronize(device)
    began_at_unix_nano, began_nano = time.time_ns(), time.perf_counter_ns()
    while not is_enough(len(spans), (time.perf_counter_ns() - began_nano) / 1e9):
        between()
        watch.mark()
        called_nano = time.perf_counter_ns()
        work()
        spans.append((called_nano, time.perf_counter_ns()))
        watch.mark()
    synchronize(device)
    return [
        Call(
            ended_at_unix_nano=began_at_unix_nano + ended_nano - began_nano,
            wall_seconds=(ended_nano - called_nano) / 1e9,
            gpu_seconds=watch.seconds(number),
        )
        for number, (called_nano, ended_nano) in enumerate(spans)
    ]


def median_seconds(work: Work, device: torch.device, repeats: int, budget_seconds: float | None = 2.0) -> float:
    """Return the median of the device's time for `work`, after a warm-up.

    Args:
        work: what is timed.
        device: where it runs.
        repeats: how often at most.
        budget_seconds: fewer repeats are made, but at least three, when so many would take longer; None: all are made.
    """
    time_calls(work, device, lambda count, _seconds: count == 2)
    count = repeats if budget_seconds is None else _affordable(work, device, repeats, budget_seconds)
    calls = time_calls(work, device, lambda made, _seconds: made == count)
    return statistics.median(call.device_seconds for call in calls)


def _affordable(work: Work, device: torch.device, repeats: int, budget_seconds: float) -> int:
    began_seconds = time.perf_counter()
    time_calls(work, device, lambda made, _seconds: made == 1)
    return max(3, min(repeats, int(budget_seconds / (time.perf_counter() - began_seconds))))


def synchronize(device: torch.device) -> None:
    """Wait until the device has done everything."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class _CpuWatch:
    """On a CPU the host's clock says all there is to say."""

    def mark(self) -> None:
        """Nothing is marked."""

    def seconds(self, _number: int) -> None:
        """There is no GPU time."""


class _GpuWatch:
    """Marks the begin and end of calls among the work that the GPU is given."""

    def __init__(self) -> None:
        self._marks: list[torch.cuda.Event] = []

    def mark(self) -> None:
        """Let the GPU note the time when it gets here."""
        mark = torch.cuda.Event(enable_timing=True)
        mark.record()
        self._marks.append(mark)

    def seconds(self, number: int) -> float:
        """Return the time between the marks before and after a call; the GPU must have got there."""
        milliseconds: float = self._marks[2 * number].elapsed_time(self._marks[2 * number + 1])
        return milliseconds / 1e3
