"""Takes a trace of a few training steps with torch's profiler."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile, schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which steps are traced, after how many others, and what of them."""

    # Steps without the profiler.
    wait: int
    # Steps with the profiler, which costs more at first, that are not kept.
    warmup: int
    # Steps that are kept.
    steps: int
    # Trace what the host does, too. It slows the host, and the GPU may have to wait for it.
    operators: bool

    @property
    def all_steps(self) -> int:
        """How many steps are taken."""
        return self.wait + self.warmup + self.steps


# What every run on a GPU traces. Without the host's side a launch costs little more than without profiler.
SHORT = Plan(wait=0, warmup=1, steps=3, operators=False)

# What --profile traces: S2's five steps.
PROFILE = Plan(wait=1, warmup=1, steps=5, operators=True)


class TraceError(Exception):
    """There is no trace, and its text says why. That costs the run nothing but the trace."""


def take(step: Callable[[], object], plan: Plan, device: torch.device) -> profile:
    """Take the plan's steps, and return the profiler that traced the last of them.

    All steps are taken even when the profiler fails: other ranks wait in their collectives for those of this one.

    Raises:
        TraceError: the profiler failed.
    """
    with only_the_trace_fails():
        profiler = profile(
            activities=_activities(plan, device),
            schedule=schedule(wait=plan.wait, warmup=plan.warmup, active=plan.steps, repeat=1),
            # There is one cycle; torch would warn that it keeps no other.
            acc_events=True,
        )
    failures: list[TraceError] = []
    _attempt(profiler.start, failures)
    try:
        for number in range(1, plan.all_steps + 1):
            step()
            # What was launched before the first traced step is not in the trace, and what the last one launched is.
            if device.type == "cuda" and number in (plan.wait + plan.warmup, plan.all_steps):
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
    """Make a TraceError of whatever goes wrong with the profiler: its libraries, permissions, disk space."""
    try:
        yield
    except TraceError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        raise TraceError(f"{type(error).__name__}: {text}"[:500]) from error


def _activities(plan: Plan, device: torch.device) -> list[ProfilerActivity]:
    host = [ProfilerActivity.CPU] if plan.operators else []
    return [*host, ProfilerActivity.CUDA] if device.type == "cuda" else host


def _attempt(action: Callable[[], None], failures: list[TraceError]) -> None:
    try:
        with only_the_trace_fails():
            action()
    except TraceError as error:
        failures.append(error)
