"""Takes a trace of a few training steps with torch's profiler."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile, schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The steps of a trace, and its content."""

    # Steps without the profiler.
    wait: int
    # Steps with the profiler, which costs more at first, that are not kept.
    warmup: int
    # Steps that are kept.
    steps: int
    # Trace what the host does, too. It slows the host, and the GPU may have to wait for it.
    operators: bool
    # How often all this is done.
    repeat: int = 1

    @property
    def cycle(self) -> int:
        """The steps to take for one trace."""
        return self.wait + self.warmup + self.steps


# The plan of every run on a GPU. Without the host's side a launch costs little more than without profiler.
SHORT = Plan(wait=0, warmup=1, steps=3, operators=False)


class TraceError(Exception):
    """The reason why there is no trace. The run continues without it."""


def take(step: Callable[[], object], plan: Plan, device: torch.device, export: Callable[[profile], None]) -> profile:
    """Take the plan's steps, and return the profiler, which has the operators of all cycles.

    `export` is called after each cycle, while the profiler has its trace. All steps are taken even when the profiler
    fails: other ranks wait in their collectives for those of this one.

    Raises:
        TraceError: the profiler failed.
    """
    activities = ((ProfilerActivity.CPU, plan.operators), (ProfilerActivity.CUDA, device.type == "cuda"))
    with only_the_trace_fails():
        profiler = profile(
            activities=[activity for activity, traced in activities if traced],
            schedule=schedule(wait=plan.wait, warmup=plan.warmup, active=plan.steps, repeat=plan.repeat),
            on_trace_ready=export,
            # Otherwise the operators are those of the last cycle alone.
            acc_events=True,
        )
    failures: list[TraceError] = []
    _attempt(profiler.start, failures)
    try:
        for number in range(1, plan.repeat * plan.cycle + 1):
            step()
            # A trace excludes launches before its first step, and includes all launches of the last.
            if device.type == "cuda" and number % plan.cycle in (plan.wait + plan.warmup, 0):
                torch.cuda.synchronize(device)
            if not failures:
                _attempt(profiler.step, failures)
    finally:
        _attempt(profiler.stop, failures)
    if failures:
        raise failures[0]
    return profiler


@contextmanager
def only_the_trace_fails() -> Iterator[None]:
    """Turn every error of the profiler into a TraceError: of its libraries, permissions or disk space."""
    try:
        yield
    except TraceError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        raise TraceError(f"{type(error).__name__}: {text}"[:500]) from error


def _attempt(action: Callable[[], None], failures: list[TraceError]) -> None:
    try:
        with only_the_trace_fails():
            action()
    except TraceError as error:
        failures.append(error)
