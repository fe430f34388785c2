"""The distance between two sides over several workloads together: one test, and one interval of a common ratio.

It is van Elteren's test (1960): the sum of each workload's Mann-Whitney U, or signed-rank W where its runs are pairs,
with weight 1 / (runs + 1), so that workloads of different scales and numbers of runs count by what they know. While it
is small, its distribution for equal sides is exact, the convolution of the workloads' own; else it is a normal
approximation. The interval is the set of common ratios that the test does not reject. If workloads differ in their
ratios, the test still holds; the ratio is then one between them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import erfc, lcm, sqrt

import numpy as np

from gpuagent_collector.statistics.shift import (
    Floats,
    Scale,
    Shift,
    Sides,
    null_distribution,
    null_variance,
    shifts_of,
    to_ratio,
)

# More differences, or sums of weighted ranks, are not handled one by one.
_MOST_DIFFERENCES, _MOST_SUMS = 250_000, 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stratum:
    """One workload: its shifts on the scale of logarithms, sorted, and the weight of each."""

    sides: Sides
    shifts: Floats
    weight: int

    def below(self, shift: float) -> int:
        """Return the weighted number of shifts that are at most `shift`."""
        return self.weight * int(np.searchsorted(self.shifts, shift, "right"))

    def above(self, shift: float) -> int:
        """Return the weighted number of shifts that are at least `shift`."""
        return self.weight * (self.shifts.size - int(np.searchsorted(self.shifts, shift, "left")))


def stratified_shift(strata: Sequence[Sides], *, alpha: float = 0.05) -> Shift | None:
    """Return the ratio that all strata have in common, with its test and interval.

    None: a stratum has values that are not positive, or there are too many runs.

    Args:
        strata: the values of both sides in each of at least one workload.
        alpha: 1 less the interval's confidence.
    """
    if any(min(*sides.baseline, *sides.other) <= 0 for sides in strata):
        return None
    counts = [_count(sides) for sides in strata]
    if sum(counts) > _MOST_DIFFERENCES:
        return None
    divisors = [_divisor(sides) for sides in strata]
    whole = lcm(*divisors)
    made = [
        _Stratum(sides=sides, shifts=np.sort(shifts_of(sides)), weight=whole // divisor)
        for sides, divisor in zip(strata, divisors, strict=True)
    ]
    tail = _lower_tail(made)
    shifts = np.unique(np.concatenate([stratum.shifts for stratum in made]))

    def below(shift: float) -> int:
        return sum(stratum.below(shift) for stratum in made)

    def above(shift: float) -> int:
        return sum(stratum.above(shift) for stratum in made)

    most = sum(stratum.weight * stratum.shifts.size for stratum in made)
    # Of the least and the greatest common shift that the condition holds for.
    low = _first(shifts, lambda shift: tail(below(shift)) > alpha / 2)
    high = _first(shifts[::-1], lambda shift: tail(above(shift)) > alpha / 2)
    middle = (
        _first(shifts, lambda shift: 2 * below(shift) >= most)
        + _first(shifts[::-1], lambda shift: 2 * above(shift) >= most)
    ) / 2
    is_bounded = tail(0) <= alpha / 2
    return Shift(
        scale=Scale.RATIO,
        estimate=to_ratio(middle),
        low=to_ratio(low) if is_bounded else None,
        high=to_ratio(high) if is_bounded else None,
        alpha=alpha,
        p_value=min(1.0, 2 * tail(min(below(0.0), above(0.0)))),
        matched=all(sides.matched for sides in strata),
    )


def _count(sides: Sides) -> int:
    runs = len(sides.other)
    return runs * (runs + 1) // 2 if sides.matched else runs * len(sides.baseline)


def _divisor(sides: Sides) -> int:
    return len(sides.other) + 1 + (0 if sides.matched else len(sides.baseline))


def _first(shifts: Floats, holds: Callable[[float], bool]) -> float:
    """Return the first shift that the condition holds for: from there on it holds for all, the last at least."""
    first, last = 0, shifts.size - 1
    while first < last:
        middle = (first + last) // 2
        if holds(float(shifts[middle])):
            last = middle
        else:
            first = middle + 1
    return float(shifts[first])


def _lower_tail(strata: Sequence[_Stratum]) -> Callable[[int], float]:
    """Return the probability that the weighted sum is at most so much, when the sides are equal in every stratum."""
    most = sum(stratum.weight * stratum.shifts.size for stratum in strata)
    own = [null_distribution(stratum.sides) for stratum in strata]
    if most > _MOST_SUMS or any(each is None for each in own):
        deviation = sqrt(sum(stratum.weight**2 * null_variance(stratum.sides) for stratum in strata))
        step = min(stratum.weight for stratum in strata)
        return lambda total: erfc((most / 2 - step / 2 - total) / (deviation * sqrt(2))) / 2
    together = np.ones(1)
    for stratum, chances in zip(strata, own, strict=True):
        wider = np.zeros(together.size + stratum.weight * stratum.shifts.size)
        for value, chance in enumerate(chances if chances is not None else ()):
            start = stratum.weight * value
            wider[start : start + together.size] += chance * together
        together = wider
    sums = np.cumsum(together)
    return lambda total: float(sums[total])
