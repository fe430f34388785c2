"""The distance between two sets of runs, with its interval and test.

The estimate is Hodges and Lehmann's, of logarithms where every value is positive, so that it reads as a ratio:

- of independent runs, the median of all differences between a run of one side and one of the other;
- of matched runs, the median of the averages of every two pairs' differences (Walsh averages).

Its interval is the set of shifts that the exact test does not reject, so interval and test never disagree. The test is
Mann and Whitney's U for independent runs, Wilcoxon's signed rank for matched ones. Equal values count against a
difference on both sides. That keeps the exact distribution of untied data valid (the test then rejects at most as often
as stated), and both ends of the interval belong to it.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from math import ceil, erfc, exp, log2, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
Values = Sequence[float] | Floats


class Sides(NamedTuple):
    """The values of the baseline's runs and of the other side's; neither is empty.

    Attributes:
        matched: whether the runs at the same index are a pair, made one after the other; else all are independent.
    """

    baseline: Values
    other: Values
    matched: bool = False


# The largest float's is 709; the difference leaves room to write such a ratio in percent.
_MAX_LOG_RATIO = 690.0

# Up to this many runs a side the distribution of U is exact, above it is the normal approximation.
_EXACT_RUNS = 50

# The same for pairs, whose distribution takes less work.
_EXACT_PAIRS = 200

# Differences of independent runs that are made at once; of more, only those near the wanted ranks.
_MOST_DIFFERENCES = 250_000

# The same where few more counts lead to so few; and the runs of each side by which their place is first guessed.
_FEW_DIFFERENCES = 20_000
_GUESSED_BY = 64
# The share of all differences by which that place may be wrong.
_GUESS_REACH = 0.01


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
        p_value: of the two-sided test.
        matched: whether the runs were matched.
    """

    scale: Scale
    estimate: float
    low: float | None
    high: float | None
    alpha: float
    p_value: float
    matched: bool = False

    @property
    def neutral(self) -> float:
        """The figure of two equal sides."""
        return 1.0 if self.scale is Scale.RATIO else 0.0

    @property
    def is_shown(self) -> bool:
        """Return whether the interval excludes equal sides."""
        return self.excludes(self.neutral)

    def excludes(self, estimate: float) -> bool:
        """Return whether there is an interval, and the figure is outside."""
        return self.low is not None and self.high is not None and not self.low <= estimate <= self.high


def estimate_shift(
    baseline: Values, other: Values, matched: bool = False, *, alpha: float = 0.05, scale: Scale | None = None
) -> Shift:
    """Return the distance of `other` from `baseline`, with its 1 - alpha interval; for `matched`, see Sides.

    `scale` None: a ratio where all values are positive, else a difference.
    """
    sides = np.split(tie_near(np.concatenate([baseline, other])), [len(baseline)])
    if scale is None:
        scale = Scale.RATIO if min(side.min() for side in sides) > 0 else Scale.DIFFERENCE
    scaled = [np.log(side) for side in sides] if scale is Scale.RATIO else sides
    lower_tail = _signed_rank_lower_tail(len(other)) if matched else _lower_tail(len(baseline), len(other))
    bound = _bound(lower_tail, alpha)
    size = len(other) * (len(other) + 1) // 2 if matched else len(baseline) * len(other)
    ranks = [(size - 1) // 2, size // 2, *((bound - 1, size - bound) if bound else ())]
    if matched or size <= _MOST_DIFFERENCES:
        shifts = (_walsh_averages if matched else _differences)(*scaled)
        # Only these ranks count: sorting the pairs of thousands of runs would take ten times as long.
        shifts.partition(ranks)
        at = [float(shifts[rank]) for rank in ranks]
        signs = int(np.count_nonzero(shifts <= 0)), int(np.count_nonzero(shifts >= 0))
    else:
        before, after = map(np.sort, scaled)
        at = _select_differences(before, after, ranks)
        signs = (
            int(np.sum(before.size - np.searchsorted(before, after, "left"))),
            int(np.sum(np.searchsorted(before, after, "right"))),
        )
    low, high = at[2:] if bound else (None, None)
    # Where many pairs are equal, both counts can be beyond the half at which the tail ends.
    extreme = min(*signs, len(lower_tail) - 1)

    def back(value: float) -> float:
        return to_ratio(value) if scale is Scale.RATIO else float(value)

    return Shift(
        scale=scale,
        estimate=back((at[0] + at[1]) / 2),
        low=None if low is None else back(low),
        high=None if high is None else back(high),
        alpha=alpha,
        p_value=min(1.0, 2 * float(lower_tail[extreme])),
        matched=matched,
    )


# Times are stored to a microsecond, and sums of equal ones may differ in the last digits.
_NEAR = 1e-6


def tie_near(values: Values) -> Floats:
    """Return positive values of which those as near as a millionth are equal, so that rounding puts none in order."""
    every = np.asarray(values, dtype=np.float64)
    if not every.size or every.min() <= 0:
        return every
    _, first, place = np.unique(np.round(np.log(every) / _NEAR), return_index=True, return_inverse=True)
    tied: Floats = every[first][place]
    return tied


def _differences(baseline: Floats, other: Floats) -> Floats:
    """Return the difference of every two runs, one of each side."""
    differences: Floats = np.subtract.outer(other, baseline).ravel()
    return differences


class _Bracket(NamedTuple):
    """The differences from `low` to `high`: of each other run the baseline's runs from `first` to before `last`."""

    low: float
    high: float
    first: Rows
    last: Rows


def _select_differences(baseline: Floats, other: Floats, ranks: Sequence[int]) -> list[float]:
    """Return the differences of these ranks, from 0, of every two runs of sorted sides, to the last bits."""
    few = [side[np.linspace(0, side.size - 1, _GUESSED_BY).astype(np.intp)] for side in (baseline, other)]
    # An even choice of all differences, in which the ranks are near their places among all.
    guesses = np.sort(_differences(*few))
    shares = np.array([min(ranks), max(ranks)]) / (baseline.size * other.size) + [-_GUESS_REACH, _GUESS_REACH]
    pivots = guesses[np.clip(shares * guesses.size, 0, guesses.size - 1).astype(np.intp)].tolist()
    every = _Bracket(
        low=other[0] - baseline[-1] - 1,
        high=other[-1] - baseline[0] + 1,
        first=np.zeros(other.size, np.int64),
        last=np.full(other.size, baseline.size),
    )
    around = _narrow(every, pivots, baseline, other, min(ranks), max(ranks))
    found: dict[int, float] = {}
    below, near = 0, np.empty(0)
    for rank in sorted(ranks):
        if not below <= rank < below + near.size:
            below, near = _find_differences_near(rank, baseline, other, around)
        found[rank] = float(np.partition(near, rank - below)[rank - below])
    return [found[rank] for rank in ranks]


def _narrow(
    bracket: _Bracket, pivots: Iterable[float], baseline: Floats, other: Floats, lowest: int, highest: int
) -> _Bracket:
    """Return the bracket of the ranks from `lowest` to `highest` that counting the differences up to pivots shows."""
    low, high, first, last = bracket
    for pivot in pivots:
        if low < pivot < high:
            start = np.clip(np.searchsorted(baseline, other - pivot, "left"), first, last)
            counted = (baseline.size - start).sum()
            if counted > highest:
                high, first = pivot, start
            elif counted <= lowest:
                low, last = pivot, start
    return _Bracket(low, high, first, last)


def _find_differences_near(rank: int, baseline: Floats, other: Floats, around: _Bracket) -> tuple[int, Floats]:
    """Return some differences, that of this rank among them, and how many of all are below these.

    They are bracketed by counting: the differences of two times 5,000 runs would take 200 MB.
    """
    low, high, first, last = around
    below, remaining = int((baseline.size - last).sum()), int((last - first).sum())
    bits = 4 * float(np.spacing(max(np.abs(baseline).max(), np.abs(other).max())))
    narrows = True
    while remaining > _MOST_DIFFERENCES or (narrows and remaining > _FEW_DIFFERENCES):
        if narrows:  # between its ends differences are about evenly spread, unless many are equal
            share, reach = (rank - below) / remaining, _FEW_DIFFERENCES / 3 / remaining
            pivots = [low + (high - low) * (share - reach), low + (high - low) * (share + reach)]
        else:  # a quarter of the differences is on each side of the rows' middle one, or equal to it
            rows = np.flatnonzero(last > first)
            middles = other[rows] - baseline[(first + last)[rows] // 2]
            if high - low <= 2 * bits:  # all that remain are equal
                return rank, middles[:1]
            order = np.argsort(middles)
            weights = np.cumsum((last - first)[rows[order]])
            middle = float(middles[order[np.searchsorted(weights, remaining / 2)]])
            pivots = [middle - bits, middle + bits]
        low, high, first, last = _narrow(_Bracket(low, high, first, last), pivots, baseline, other, rank, rank)
        before, remaining = remaining, int((last - first).sum())
        below = int((baseline.size - last).sum())
        narrows = 2 * remaining < before
    lengths = last - first
    ends = np.cumsum(lengths)
    at = np.arange(ends[-1]) + np.repeat(first - ends + lengths, lengths)
    return below, np.repeat(other, lengths) - baseline[at]


# Of the largest difference.
_ROUNDING = 1e-12


def _walsh_averages(baseline: Floats, other: Floats) -> Floats:
    """Return the average of every two pairs' differences, each pair with itself too; exactly 0 where these cancel."""
    differences = other - baseline
    averages: Floats = np.add.outer(differences, differences)[np.triu_indices(differences.size)] / 2
    # What rounding leaves of opposite ones would be on one side of 0.
    averages[np.abs(averages) < _ROUNDING * np.abs(differences).max(initial=0.0)] = 0.0
    return averages


def shifts_of(sides: Sides) -> Floats:
    """Return what the estimate is the median of, of positive values, as logarithms of ratios."""
    values = tie_near(np.concatenate([sides.baseline, sides.other]))
    baseline, other = np.split(np.log(values), [len(sides.baseline)])
    return _walsh_averages(baseline, other) if sides.matched else _differences(baseline, other)


def to_ratio(logarithm: float) -> float:
    """Return the ratio of a logarithm; a workload may report figures whose ratio is more than a float can hold."""
    return exp(max(-_MAX_LOG_RATIO, min(logarithm, _MAX_LOG_RATIO)))


def null_distribution(sides: Sides) -> Floats | None:
    """Return the probability of each number of shifts below 0 when the sides are equal; None: too many runs for it."""
    runs = len(sides.baseline), len(sides.other)
    if sides.matched:
        most, tail = runs[1] * (runs[1] + 1) // 2, _signed_rank_lower_tail(runs[1])
    else:
        most, tail = runs[0] * runs[1], _lower_tail(*runs)
    if isinstance(tail, _NormalLowerTail):
        return None
    lower = np.diff(tail, prepend=0.0)
    return np.concatenate([lower, lower[: most + 1 - lower.size][::-1]])


def null_variance(sides: Sides) -> float:
    """Return the variance of the number of shifts below 0 when the sides are equal."""
    before, after = len(sides.baseline), len(sides.other)
    if sides.matched:
        return after * (after + 1) * (2 * after + 1) / 24
    return before * after * (before + after + 1) / 12


def rejection_bound(baseline_runs: int, other_runs: int, alpha: float = 0.05) -> int:
    """Return the lowest U that is not rejected at alpha; 0: no outcome is rejected.

    U is the number of pairs on the rarer side, so the interval goes from the shift of that rank to its mirror's.
    """
    return _bound(_lower_tail(baseline_runs, other_runs), alpha)


def matched_rejection_bound(pairs: int, alpha: float = 0.05) -> int:
    """Return the lowest signed-rank sum that is not rejected at alpha; 0: no outcome is rejected."""
    return _bound(_signed_rank_lower_tail(pairs), alpha)


def smallest_p_value(baseline_runs: int, other_runs: int) -> float:
    """Return the lowest p-value that so many runs can reach: 0.1 for 3 against 3, 0.029 for 4 against 4."""
    return min(1.0, 2 * float(_lower_tail(baseline_runs, other_runs)[0]))


def least_runs(comparisons: int, alpha: float = 0.05) -> int:
    """Return the independent runs a side that it takes to show a difference in so many comparisons at once."""
    runs = 2
    while smallest_p_value(runs, runs) > alpha / comparisons:
        runs += 1
    return runs


def least_pairs(comparisons: int, alpha: float = 0.05) -> int:
    """Return the pairs of matched runs that it takes to show a difference in so many comparisons at once.

    One outcome of the 2^pairs is the most extreme on each side: 6 pairs reach p = 0.031.
    """
    return ceil(log2(comparisons / alpha)) + 1


def _bound(lower_tail: Sequence[float], alpha: float) -> int:
    return bisect_right(lower_tail, alpha / 2)


@lru_cache(maxsize=256)
def _signed_rank_lower_tail(pairs: int) -> Sequence[float]:
    """Return P(W <= w) for each w from 0 to half of the most, when differences are symmetric about 0.

    W is the sum of the ranks of the positive differences. The last probability is at least one half.
    """
    most = pairs * (pairs + 1) // 2
    if pairs > _EXACT_PAIRS:
        deviation = sqrt(most * (2 * pairs + 1) / 12)
        return _NormalLowerTail(most, deviation)
    # ways[w]: the number of sets of ranks so far whose sum is w.
    ways = np.zeros(most + 1)
    ways[0] = 1
    for rank in range(1, pairs + 1):
        ways[rank:] += ways[:-rank].copy()
    tail: Floats = np.cumsum(ways) / 2.0**pairs
    return list(tail[: most // 2 + 1])


@dataclass(frozen=True, slots=True)
class _NormalLowerTail(Sequence[float]):
    """The normal approximation of a tail that is symmetric about half of `most`, up to there."""

    most: int
    deviation: float

    def __len__(self) -> int:
        return self.most // 2 + 1

    def __getitem__(self, index: int) -> float:  # type: ignore[override]  # nobody takes a slice
        # By erfc and not by NormalDist().cdf, which is 1 + erf: that is imprecise far out in the tail.
        return erfc((self.most / 2 - 0.5 - index) / (self.deviation * sqrt(2))) / 2


@lru_cache(maxsize=256)
def _lower_tail(baseline_runs: int, other_runs: int) -> Sequence[float]:
    """Return P(U <= u) for each u from 0 to half the product of the sizes, when both sides have the same distribution.

    The last one is at least one half.
    """
    product = baseline_runs * other_runs
    if max(baseline_runs, other_runs) > _EXACT_RUNS:
        return _NormalLowerTail(product, sqrt(product * (baseline_runs + other_runs + 1) / 12))
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
    return list(tail[: product // 2 + 1])
