"""The steps of a run, summed up as they are read, and the figures that follow from them.

The steps of a run are those of its measured phase; where times are known, one without is a gap and no step. Their
time is the median, of the slowest rank, by CUDA events where there are any. A collector counts and shows them likewise.
"""

import statistics
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gpuagent_common.text import counted


class StepFigure(NamedTuple):
    """A figure of the measured steps of one rank, of which no report of the program has the name."""

    rank: int
    name: str
    value: float
    unit: str | None


# Steps of which the median is known here; 1 MiB a rank. A collector has that of any number.
_MOST_TIMES = 2**17


@dataclass(slots=True)
class StepSums:
    """The steps of one rank.

    Attributes:
        steps: their number, warm-up included; those between two lines that only count samples are not known.
        measured: number of those in the measured phase.
        timed: number of these that have a time; one with a gap in it has none.
        times: those times, up to a bound, as a collector has them.
        seconds: the time of those.
        items: of those; None: not known of each.
        data_wait_seconds: the time in which they waited for data; None: not reported.
    """

    steps: int = 0
    measured: int = 0
    timed: int = 0
    times: "array[float]" = field(default_factory=lambda: array("d"))
    seconds: float = 0.0
    items: float | None = 0.0
    data_wait_seconds: float | None = None

    def add(
        self, phase: object, count: int, seconds: float | None, items: float | None, own_seconds: float | None = None
    ) -> None:
        """Add one step, or `count` steps of the same time and items; 0: their number is not known.

        `own_seconds` is its time on the GPU, where that is known and less than its part in the pace.
        """
        self.steps += count
        if phase != "measure":
            return
        self.measured += count
        if seconds is None:
            return
        self.timed += count
        if len(self.times) <= _MOST_TIMES:
            self.times.append(seconds if own_seconds is None else own_seconds)
        self.seconds += (count or 1) * seconds
        self.items = None if items is None or self.items is None else self.items + (count or 1) * items


@dataclass(slots=True)
class RunSteps:
    """The steps of all ranks."""

    by_rank: dict[int, StepSums] = field(default_factory=dict)
    # The source of steps that the program did not report by itself, such as `pattern nanogpt`.
    found_by: str | None = None

    def of(self, rank: int) -> StepSums:
        """Return the sums of a rank."""
        return self.by_rank.setdefault(rank, StepSums())

    def figures(self, reported: Mapping[str, object]) -> Iterator[StepFigure]:
        """Yield the figures of the measured steps; where the program reports a throughput itself, none.

        Ranks that know their items add up. Steps themselves are the same on all ranks, so only the first counts.
        """
        if "throughput" in reported:
            return
        for rank, sums in self.by_rank.items():
            if not sums.seconds:
                continue
            if sums.items:
                yield StepFigure(rank, "throughput", sums.items / sums.seconds, "items/s")
            elif sums.timed and rank == 0:
                yield StepFigure(rank, "throughput", sums.timed / sums.seconds, "steps/s")
            if sums.timed:
                yield StepFigure(rank, "steps", sums.timed, None)
            if sums.data_wait_seconds is not None:
                share = 100 * min(1.0, sums.data_wait_seconds / sums.seconds)
                yield StepFigure(rank, "data_wait_share", share, "%")

    def __str__(self) -> str:
        """Return the number of steps, their time and their source; empty: there are no steps."""
        sums = self.by_rank[min(self.by_rank)] if self.by_rank else StepSums()
        source = f" ({self.found_by})" if self.found_by else ""
        if sums.measured:
            ranks = [of_rank.times for of_rank in self.by_rank.values() if of_rank.times]
            is_known = ranks and max(map(len, ranks)) <= _MOST_TIMES
            each = f" of {_duration(max(map(statistics.median, ranks)))}" if is_known else ""
            return f"{counted(sums.timed or sums.measured, 'measured step')}{each}{source}"
        if sums.steps:
            return f"{counted(sums.steps, 'step')}, none after the warm-up{source}"
        if sums.items and sums.seconds:
            return f"{sums.items:,.0f} items, {write_figure(sums.items / sums.seconds)} items/s{source}"
        return ""


def write_figure(value: float) -> str:
    """Return a figure with four digits, or all before the point: 0.5, 157.2, 33,590."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _duration(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"
