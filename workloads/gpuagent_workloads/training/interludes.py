"""Work that interrupts the measured steps every so often, such as saves and tests."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from gpuagent_workloads.report import Reporter
from gpuagent_workloads.training.progress import Step
from gpuagent_workloads.training.timing import synchronize


@dataclass(frozen=True, slots=True, kw_only=True)
class Interlude:
    """One kind of interruption."""

    # Of its gaps, and the begin of its results' names.
    name: str
    # Steps from one to the next; None: there are none.
    every: int | None
    # Called with the number of measured steps so far.
    work: Callable[[int], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """One interruption."""

    name: str
    # The number of the step that it came after.
    step: int
    seconds: float
    at_unix_nano: int


class Interludes:
    """All interruptions of a training. Their time is the training's, but no step's."""

    def __init__(self, device: torch.device, interludes: Sequence[Interlude] = ()) -> None:
        self._device = device
        self._interludes = [interlude for interlude in interludes if interlude.every]
        self._gaps: list[Gap] = []

    def after(self, step: Step, first_step: int) -> Step:
        """Return a function that takes a step, the first of that number, and then interrupts where it is time."""
        if not self._interludes:
            return step
        taken = first_step

        def interrupted_step() -> torch.Tensor:
            nonlocal taken
            loss = step()
            taken += 1
            for interlude in self._interludes:
                if interlude.every and taken % interlude.every == 0:
                    self._interrupt(interlude, taken)
            return loss

        return interrupted_step

    @property
    def steps(self) -> frozenset[int]:
        """The numbers of the steps that an interruption came after."""
        return frozenset(gap.step for gap in self._gaps)

    def report(self, reporter: Reporter) -> None:
        """Report each interruption as a gap, and the number and time of each kind."""
        for gap in self._gaps:
            reporter.gap(gap.name, seconds=gap.seconds, step=gap.step, at_unix_nano=gap.at_unix_nano)
        for interlude in self._interludes:
            seconds = [gap.seconds for gap in self._gaps if gap.name == interlude.name]
            reporter.result(f"{interlude.name}s", len(seconds), phase="measure")
            reporter.result(f"{interlude.name}_seconds", sum(seconds), unit="s", phase="measure")

    def _interrupt(self, interlude: Interlude, taken: int) -> None:
        synchronize(self._device)
        began_seconds = time.perf_counter()
        interlude.work(taken)
        synchronize(self._device)
        seconds = time.perf_counter() - began_seconds
        self._gaps.append(Gap(name=interlude.name, step=taken - 1, seconds=seconds, at_unix_nano=time.time_ns()))
