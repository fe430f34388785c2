"""The training loop, which times steps without disturbing them.

Within a window nothing is printed, written, or read back from the GPU. Losses stay on the device, and CUDA events are
read when the window is over.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Any, Generic, TypeVar

import torch

from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.config import TrainingConfig
from gpuagent_workloads.training.progress import Progress, Step, Work
from gpuagent_workloads.training.ranks import AgreedEnd
from gpuagent_workloads.training.timing import Call, synchronize
from gpuagent_workloads.training.trace.report import report_trace

# The least length of the measured phase: power and utilisation are themselves averages over up to a second.
MEASURE_SECONDS = 10.0

# The interval of kept losses and other figures; keeping all would grow the measured GPU memory.
LOSS_EVERY_STEPS = 10

BatchT = TypeVar("BatchT")

# Returns figures of the latest step, by name.
Figures = Callable[[], Mapping[str, torch.Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Consecutive steps; the device was idle before the first and after the last."""

    steps: Sequence[Call]
    # Of every tenth step and of the last, with the step's number from 0: the loss, and other figures by name.
    figures: Sequence[tuple[int, Mapping[str, torch.Tensor]]]
    # From before the first step until the device had done the last.
    seconds: float
    # The time when the device had done the last.
    ended_at_unix_nano: int


class Feed(Generic[BatchT], Iterator[BatchT]):
    """An iterator over batches that adds up the time in which the host waits for them.

    That time covers picking and decoding where that is not done ahead, and enqueuing the copy to the GPU, but not the
    copy itself.
    """

    def __init__(self, batches: Iterator[BatchT]) -> None:
        self.waited_seconds = 0.0
        self._batches = batches

    def __next__(self) -> BatchT:
        asked_nano = time.perf_counter_ns()
        batch = next(self._batches)
        self.waited_seconds += (time.perf_counter_ns() - asked_nano) / 1e9
        return batch


def train(
    step: Step,
    config: TrainingConfig,
    steps_per_epoch: int,
    device: torch.device,
    reporter: Reporter,
    feed: Feed[Any] | None = None,
    progress: Progress | None = None,
    figures: Figures = dict,
) -> Window:
    """Take the warm-up steps, then the measured ones, and report their times, losses, throughput and memory.

    The phase `measure` ends, and `teardown` begins, when the device has done the last measured step. With several ranks
    all must call this; they have parted when it returns.

    Args:
        config: the number of steps, and of items in a step.
        steps_per_epoch: steps of all ranks in a pass over the data.
        feed: the source of their batches, to report the time of waiting for it; None: not reported.
        progress: from `progress.resume`; None: one rank, from the beginning.
        figures: returns others of a step than its loss, by name, that are still on the device.

    Returns:
        The steps that this process measured.
    """
    progress = progress or Progress()
    if config.warmup and not progress.resumed:
        reporter.phase("warmup")
        first = run_window(step, lambda count, _seconds: count == 1, device)
        reporter.result("time_to_first_step", reporter.elapsed_seconds(), unit="s")
        others = run_window(step, lambda count, _seconds: count == config.warmup - 1, device)
        report_steps([*first.steps, *others.steps], config.items_per_step, reporter)

    first_step = progress.position.step
    reporter.phase("measure", first_step=first_step)
    began_seconds = reporter.elapsed_seconds()
    waited_before_seconds = feed.waited_seconds if feed else 0.0
    # For ncu and nsys, which can be limited to this.
    with torch.cuda.profiler.profile() if device.type == "cuda" else nullcontext():
        measured = run_window(progress.recorded(step), _is_enough(config, steps_per_epoch, progress), device, figures)
    report_steps(measured.steps, config.items_per_step, reporter)
    if not config.warmup and not progress.resumed:
        reporter.result("time_to_first_step", began_seconds + measured.steps[0].device_seconds, unit="s")
    reporter.phase("teardown", at_unix_nano=measured.ended_at_unix_nano)
    steps = len(measured.steps)
    work = progress.finish(reporter) or Work(steps=steps, batches=steps, seconds=measured.seconds)
    reporter.result("steps", work.steps, phase="measure")
    throughput = work.batches * config.items_per_step / work.seconds
    reporter.result("throughput", throughput, unit=f"{config.item}/s", phase="measure")
    if work.seconds < MEASURE_SECONDS:
        reporter.result("measure_short", 1, phase="measure")
    reporter.result("items_per_epoch", steps_per_epoch * config.items_per_step * progress.ranks.size)
    _report_memory_and_figures(measured, first_step, device, reporter)
    if feed:
        waited_seconds = feed.waited_seconds - waited_before_seconds
        reporter.result("data_wait_share", 100 * waited_seconds / measured.seconds, unit="%", phase="measure")
    report_trace(step, config, measured.seconds / steps, device, reporter)
    progress.leave()
    return measured


def run_window(
    step: Step, is_enough: Callable[[int, float], bool], device: torch.device, figures: Figures = dict
) -> Window:
    """Take steps until `is_enough(steps taken, their seconds)`."""
    kept: list[tuple[int, Mapping[str, torch.Tensor]]] = []
    watch = _StopWatch(device)
    count = 0
    while not is_enough(count, watch.lap_seconds()):
        loss = step().detach()
        watch.lap()
        if count % LOSS_EVERY_STEPS == 0:
            kept.append((count, {"loss": loss, **figures()}))
        count += 1
    watch.stop()
    if count and kept[-1][0] != count - 1:
        kept.append((count - 1, {"loss": loss, **figures()}))
    return Window(
        steps=watch.step_times(), figures=kept, seconds=watch.total_seconds, ended_at_unix_nano=watch.ended_at_unix_nano
    )


def _is_enough(config: TrainingConfig, steps_per_epoch: int, progress: Progress) -> Callable[[int, float], bool]:
    steps = progress.steps_to_go(config, steps_per_epoch)
    if steps is not None:
        return lambda count, _seconds: count == steps
    if progress.ranks.size > 1:
        return AgreedEnd(progress.ranks, MEASURE_SECONDS)
    return lambda _count, seconds: seconds >= MEASURE_SECONDS


def report_steps(steps: Sequence[Call], items: int, reporter: Reporter) -> None:
    """Report the times of steps that each took so many items."""
    for step in steps:
        reporter.step(
            wall_seconds=step.wall_seconds,
            gpu_seconds=step.gpu_seconds,
            items=items,
            at_unix_nano=step.ended_at_unix_nano,
        )


def _report_memory_and_figures(measured: Window, first_step: int, device: torch.device, reporter: Reporter) -> None:
    if device.type == "cuda":
        reporter.result("peak_memory_allocated", torch.cuda.max_memory_allocated(device), unit="bytes")
        reporter.result("peak_memory_reserved", torch.cuda.max_memory_reserved(device), unit="bytes")
    for number, figures in measured.figures:
        for name, value in figures.items():
            reporter.metric(name, value.item(), step=first_step + number)
    for name, value in measured.figures[-1][1].items():
        reporter.result(name, value.item(), unit=None if name == "loss" else "%", phase="measure")


class _StopWatch:
    """The times of steps, on the host's clock and, with a GPU, by events in its queue."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._marks: list[torch.cuda.Event] = []
        synchronize(self._device)
        self._began_at_unix_nano = time.time_ns()
        self._laps_nano = [time.perf_counter_ns()]
        self._mark()

    def lap(self) -> None:
        """Mark the end of a step on the host."""
        self._laps_nano.append(time.perf_counter_ns())
        self._mark()

    def lap_seconds(self) -> float:
        """Return the time from the start to the last lap."""
        return (self._laps_nano[-1] - self._laps_nano[0]) / 1e9

    def stop(self) -> None:
        """Wait until the device has done everything."""
        synchronize(self._device)
        total_nano = time.perf_counter_ns() - self._laps_nano[0]
        self.total_seconds = total_nano / 1e9
        self.ended_at_unix_nano = self._began_at_unix_nano + total_nano

    def step_times(self) -> list[Call]:
        """Return the time of each step; the watch must have been stopped."""
        gpu_seconds = [began.elapsed_time(ended) / 1e3 for began, ended in pairwise(self._marks)]
        return [
            Call(
                ended_at_unix_nano=self._began_at_unix_nano + ended_nano - self._laps_nano[0],
                wall_seconds=(ended_nano - began_nano) / 1e9,
                gpu_seconds=on_gpu,
            )
            for (began_nano, ended_nano), on_gpu in zip_longest(pairwise(self._laps_nano), gpu_seconds)
        ]

    def _mark(self) -> None:
        if self._device.type == "cuda":
            mark = torch.cuda.Event(enable_timing=True)
            mark.record()
            self._marks.append(mark)
