"""The distance between two sets of runs, with its interval and test.

The estimate is Hodges and Lehmann's: the median of all pairwise differences, of logarithms where every value is
positive, so that it reads as a ratio. Its interval is the set of shifts that the exact Mann-Whitney U test does not
reject, so interval and test never disagree. Equal values count against a difference on both sides. That keeps the
exact distribution of untied data valid (the test then rejects at most as often as stated), and both ends of the
interval belong to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from math import erfc, exp, sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# The values of the baseline's runs and of the other side's; neither is empty.
Pair = tuple[Sequence[float], Sequence[float]]

# The largest float's is 709; the difference leaves room to write such a ratio in percent.
_MAX_LOG_RATIO = 690.0

# Up to this many runs a side the distribution of U is exact, above it is the normal approximation.
_EXACT_RUNS = 50


class Scale(Enum):
    """The arithmetic by which two sides are compared."""

    RATIO = "ratio"
    # Where a value is zero or negative, there is no ratio.
    DIFFERENCE = "difference"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """The distance of `other` from `baseline`.

    Attributes:
        scale: whether the figures are other / baseline or other - baseline.
        estimate: the Hodges-Lehmann estimate.
        low, high: the interval, its ends included; None: too few runs for one at this level.
        alpha: 1 less the interval's confidence.
        p_value: of the two-sided Mann-Whitney U test.
    """

    scale: Scale
    estimate: float
    low: float | None
    high: float | None
    alpha: float
    p_value: float

    @property
    def neutral(self) -> float:
        """The figure of two equal sides."""
        return 1.0 if self.scale is Scale.RATIO else 0.0

    @property
    def is_shown(self) -> bool:
        """Return whether the interval excludes equal sides."""
        return self.low is not None and self.high is not None and not self.low <= self.neutral <= self.high


def estimate_shift(baseline: Sequence[float], other: Sequence[float], *, alpha: float = 0.05) -> Shift:
    """Return the distance of `other` from `baseline`, with its 1 - alpha interval."""
    sides = [np.asarray(side, dtype=np.float64) for side in (baseline, other)]
    scale = Scale.RATIO if min(*baseline, *other) > 0 else Scale.DIFFERENCE
    if scale is Scale.RATIO:
        sides = [np.log(side) for side in sides]
    shifts: Floats = np.subtract.outer(sides[1], sides[0]).ravel()
    lower_tail = _lower_tail(len(baseline), len(other))
    bound = rejection_bound(len(baseline), len(other), alpha)
    middle = ((shifts.size - 1) // 2, shifts.size // 2)
    # Only these ranks count: sorting the pairs of thousands of runs would take ten times as long.
    shifts.partition([*middle, *((bound - 1, shifts.size - bound) if bound else ())])
    low, high = (shifts[bound - 1], shifts[-bound]) if bound else (None, None)
    # Where many pairs are equal, both counts can be beyond the half at which the tail ends.
    extreme = min(int(np.count_nonzero(shifts <= 0)), int(np.count_nonzero(shifts >= 0)), lower_tail.size - 1)

    def back(value: float) -> float:
        # A workload may report figures whose ratio is more than a float can hold.
        return exp(max(-_MAX_LOG_RATIO, min(value, _MAX_LOG_RATIO))) if scale is Scale.RATIO else float(value)

    return Shift(
        scale=scale,
        estimate=back(float(shifts[middle[0]] + shifts[middle[1]]) / 2),
        low=None if low is None else back(low),
        high=None if high is None else back(high),
        alpha=alpha,
        p_value=min(1.0, 2 * float(lower_tail[extreme])),
    )


def rejection_bound(baseline_runs: int, other_runs: int, alpha: float = 0.05) -> int:
    """Return the lowest U that is not rejected at alpha; 0: no outcome is rejected.

    U is the number of pairs on the rarer side, so the interval goes from the shift of that rank to its mirror's.
    """
    return int(np.searchsorted(_lower_tail(baseline_runs, other_runs), alpha / 2, side="right"))


def smallest_p_value(baseline_runs: int, other_runs: int) -> float:
    """Return the lowest p-value that so many runs can reach: 0.1 for 3 against 3, 0.029 for 4 against 4."""
    return min(1.0, 2 * float(_lower_tail(baseline_runs, other_runs)[0]))


def least_runs(comparisons: int, alpha: float = 0.05) -> int:
    """Return the runs a side that it takes to show a difference in so many comparisons at once."""
    runs = 2
    while smallest_p_value(runs, runs) > alpha / comparisons:
        runs += 1
    return runs


@lru_cache(maxsize=256)
def _lower_tail(baseline_runs: int, other_runs: int) -> Floats:
    """Return P(U <= u) for each u from 0 to half the product of the sizes, when both sides have the same distribution.

    The last one is at least one half.
    """
    product = baseline_runs * other_runs
    if max(baseline_runs, other_runs) > _EXACT_RUNS:
        deviation = sqrt(product * (baseline_runs + other_runs + 1) / 12)
        # By erfc and not by NormalDist().cdf, which is 1 + erf: that is imprecise far out in the tail.
        scaled = (product / 2 - 0.5 - np.arange(product // 2 + 1)) / (deviation * sqrt(2))
        return np.fromiter(map(erfc, scaled.tolist()), np.float64, scaled.size) / 2
    # ways[k, s]: how many choices of k among the ranks so far sum to s. A rank is counted from 0, so the least sum of
    # `baseline_runs` ranks is that of the lowest ones, at which U is 0.
    ranks = baseline_runs + other_runs
    ways = np.zeros((baseline_runs + 1, baseline_runs * ranks + 1))
    ways[0, 0] = 1
    for rank in range(ranks):
        ways[1:, rank:] += ways[:-1, : ways.shape[1] - rank].copy()
    least = baseline_runs * (baseline_runs - 1) // 2
    counts = ways[baseline_runs, least : least + product + 1]
    tail: Floats = np.cumsum(counts) / counts.sum()
    return tail[: product // 2 + 1]
