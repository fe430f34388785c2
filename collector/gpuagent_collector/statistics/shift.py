"""How far two sets of runs lie apart, and what can be said about it.

The estimate is Hodges and Lehmann's: the median of all pairwise differences, of logarithms where every value is
positive, so that it reads as a ratio. Its interval is the set of shifts that the exact Mann-Whitney U test does not
reject, so interval and test can never disagree. Equal values count against a difference on both sides, which keeps the
exact distribution of untied data valid (the test then rejects at most as often as it says) and makes both ends of the
interval belong to it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from math import comb, erfc, exp, log, log1p, sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# The largest float's is 709; the difference leaves room to write such a ratio in percent.
_MAX_LOG_RATIO = 690.0

# Up to this many runs a side the distribution of U is exact, above it is the normal approximation.
_EXACT_RUNS = 50


class Scale(Enum):
    """How two sides are set against each other."""

    RATIO = "ratio"
    # Where a value is zero or negative, there is no ratio.
    DIFFERENCE = "difference"


class Verdict(Enum):
    """What can be said of two sides."""

    DIFFERS = "differs"
    # The whole interval lies within the margin that counts as equal.
    EQUAL = "="
    # Neither a difference nor equality is shown.
    NOT_SHOWN = "~"
    # No outcome of so few runs could have shown a difference at the level at which they are tested.
    TOO_FEW = "n too small"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """How far `other` lies from `baseline`.

    Attributes:
        scale: whether the figures are other / baseline or other - baseline.
        estimate: the Hodges-Lehmann estimate.
        low, high: the interval, its ends included; None where so few runs bound nothing at this level.
        alpha: 1 less the interval's confidence.
        p_value: of the two-sided Mann-Whitney U test.
    """

    scale: Scale
    estimate: float
    low: float | None
    high: float | None
    alpha: float
    p_value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A shift, at the level at which Holm's procedure tested it, and the verdict."""

    shift: Shift
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometricMean:
    """The geometric mean of the ratios of several pairs, each of which counts alike.

    Attributes:
        pairs: of how many.
        ratio: of their estimates.
        low, high: its interval; None where so few runs bound nothing.
        alpha: 1 less the interval's confidence, at most.
    """

    pairs: int
    ratio: float
    low: float | None
    high: float | None
    alpha: float


# The values of the baseline's runs and of the other side's; neither is empty.
Pair = tuple[Sequence[float], Sequence[float]]


def estimate_shift(baseline: Sequence[float], other: Sequence[float], *, alpha: float = 0.05) -> Shift:
    """Return how far `other` lies from `baseline`, with its 1 - alpha interval."""
    scale = _scale(baseline, other)
    shifts = _pairwise(baseline, other, scale)
    lower_tail = _lower_tail(len(baseline), len(other))
    bound = rejection_bound(len(baseline), len(other), alpha)
    middle = ((shifts.size - 1) // 2, shifts.size // 2)
    # Only these ranks count: sorting the pairs of thousands of runs would take ten times as long.
    shifts.partition([*middle, *((bound - 1, shifts.size - bound) if bound else ())])
    low, high = (shifts[bound - 1], shifts[-bound]) if bound else (None, None)
    # Where many pairs are equal, both counts can lie beyond the half at which the tail ends.
    extreme = min(int(np.count_nonzero(shifts <= 0)), int(np.count_nonzero(shifts >= 0)), lower_tail.size - 1)
    back = _back(scale)
    return Shift(
        scale=scale,
        estimate=back(float(shifts[middle[0]] + shifts[middle[1]]) / 2),
        low=None if low is None else back(float(low)),
        high=None if high is None else back(float(high)),
        alpha=alpha,
        p_value=min(1.0, 2 * float(lower_tail[extreme])),
    )


def rejection_bound(baseline_runs: int, other_runs: int, alpha: float = 0.05) -> int:
    """Return the lowest U that is not rejected at alpha; 0 where no outcome is.

    U is the number of pairs that lie on the rarer side, so the interval goes from the shift of that rank to its
    mirror's.
    """
    return int(np.searchsorted(_lower_tail(baseline_runs, other_runs), alpha / 2, side="right"))


def median_interval(values: Sequence[float], *, alpha: float = 0.05) -> tuple[float, float] | None:
    """Return the 1 - alpha interval of the median that holds whatever the distribution; None for too few values.

    Its ends are two of the values, by the sign test: it takes 6 values for 95 %.
    """
    # ways: in how many of the 2^n ways to fall on either side of the median up to `beyond` of the values lie below it.
    beyond, ways = 0, 1
    while 2 * ways / 2 ** len(values) <= alpha:
        beyond += 1
        ways += comb(len(values), beyond)
    ranked = sorted(values)
    return (ranked[beyond - 1], ranked[-beyond]) if beyond else None


def smallest_p_value(baseline_runs: int, other_runs: int) -> float:
    """Return the lowest p-value that so many runs can reach: 0.1 for 3 against 3, 0.029 for 4 against 4."""
    return min(1.0, 2 * float(_lower_tail(baseline_runs, other_runs)[0]))


def holm_levels(p_values: Sequence[float], alpha: float = 0.05) -> list[float]:
    """Return the level at which Holm's step-down procedure tests each hypothesis.

    Those after the first that is not rejected are held at its level: there none of them is rejected either, so a test
    and an interval at these levels agree with the procedure.
    """
    levels = [alpha] * len(p_values)
    level, rejecting = alpha, True
    for done, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if rejecting:
            level = alpha / (len(p_values) - done)
            rejecting = p_values[index] <= level
        levels[index] = level
    return levels


def judge(pairs: Sequence[Pair], *, delta: float = 0.02, alpha: float = 0.05) -> list[Judgement]:
    """Return the verdicts over all pairs, of which at most a share alpha of all such families holds a false 'differs'.

    Args:
        pairs: the values of each comparison; all of them together are one family.
        delta: what counts as equal: ratios from 1 / (1 + delta) to 1 + delta, or, where there is no ratio,
            differences up to delta times the smaller median.
        alpha: the family's error rate.
    """
    p_values = [estimate_shift(*pair).p_value for pair in pairs]
    judgements = []
    for pair, level in zip(pairs, holm_levels(p_values, alpha), strict=True):
        shift = estimate_shift(*pair, alpha=level)
        judgements.append(Judgement(shift=shift, verdict=_verdict(shift, _margin(pair, shift.scale, delta))))
    return judgements


def geometric_mean(pairs: Sequence[Pair], *, alpha: float = 0.05) -> GeometricMean | None:
    """Return the geometric mean of the ratios of at least one pair; None where some pair has no ratio.

    Its interval goes from the geometric mean of the low ends to that of the high ends of the pairs' intervals at
    alpha by their number. These hold all together with 1 - alpha at least (Bonferroni), and then the mean lies between.
    It is about these pairs, not about others that might have been measured.
    """
    shifts = [estimate_shift(*pair, alpha=alpha / len(pairs)) for pair in pairs]
    if any(shift.scale is not Scale.RATIO for shift in shifts):
        return None
    ends = [(shift.low, shift.high) for shift in shifts if shift.low is not None and shift.high is not None]
    bounded = len(ends) == len(shifts)
    return GeometricMean(
        pairs=len(pairs),
        ratio=_geometric([shift.estimate for shift in shifts]),
        low=_geometric([low for low, _ in ends]) if bounded else None,
        high=_geometric([high for _, high in ends]) if bounded else None,
        alpha=alpha,
    )


def _geometric(ratios: Sequence[float]) -> float:
    return exp(sum(map(log, ratios)) / len(ratios))


def least_runs(comparisons: int, alpha: float = 0.05) -> int:
    """Return how many runs a side it takes for a difference to be showable in so many comparisons at once."""
    runs = 2
    while smallest_p_value(runs, runs) > alpha / comparisons:
        runs += 1
    return runs


def outliers(values: Sequence[float], *, least_share: float = 0.02) -> list[int]:
    """Return the indices of values that lie far from their median.

    Far is more than 5 + 50 / n robust standard deviations (1.4826 times the median absolute deviation), which one in
    about a hundred sets of normal values of any size has, and more than the share `least_share` of the median. Under
    five values nothing can be called far.
    """
    if len(values) < 5:
        return []
    deviations = 5 + 50 / len(values)
    array = np.asarray(values, dtype=np.float64)
    distance = np.abs(array - np.median(array))
    far = np.maximum(deviations * 1.4826 * np.median(distance), least_share * abs(np.median(array)))
    return [int(index) for index in np.flatnonzero(distance > far)]


def _verdict(shift: Shift, margin: tuple[float, float]) -> Verdict:
    if shift.low is None or shift.high is None:
        return Verdict.TOO_FEW
    if margin[0] <= shift.low and shift.high <= margin[1]:
        return Verdict.EQUAL
    neutral = 1.0 if shift.scale is Scale.RATIO else 0.0
    return Verdict.NOT_SHOWN if shift.low <= neutral <= shift.high else Verdict.DIFFERS


def _margin(pair: Pair, scale: Scale, delta: float) -> tuple[float, float]:
    if scale is Scale.RATIO:
        return exp(-log1p(delta)), exp(log1p(delta))
    margin = delta * min(abs(float(np.median(side))) for side in pair)
    return -margin, margin


def _scale(baseline: Sequence[float], other: Sequence[float]) -> Scale:
    return Scale.RATIO if min(*baseline, *other) > 0 else Scale.DIFFERENCE


def _pairwise(baseline: Sequence[float], other: Sequence[float], scale: Scale) -> Floats:
    """Return all differences other - baseline, of logarithms for a ratio."""
    sides = [np.asarray(side, dtype=np.float64) for side in (baseline, other)]
    if scale is Scale.RATIO:
        sides = [np.log(side) for side in sides]
    return np.subtract.outer(sides[1], sides[0]).ravel()


def _back(scale: Scale) -> Callable[[float], float]:
    return _exp if scale is Scale.RATIO else float


def _exp(log_ratio: float) -> float:
    # Nothing keeps a workload from reporting figures whose ratio is more than a float holds.
    return exp(max(-_MAX_LOG_RATIO, min(log_ratio, _MAX_LOG_RATIO)))


@lru_cache(maxsize=256)
def _lower_tail(baseline_runs: int, other_runs: int) -> Floats:
    """Return P(U <= u) for each u from 0 to half the product of the sizes, when both sides have the same distribution.

    The last one is at least one half.
    """
    if max(baseline_runs, other_runs) > _EXACT_RUNS:
        return _normal_lower_tail(baseline_runs, other_runs)
    # ways[k, s]: how many choices of k among the ranks so far sum to s. A rank is counted from 0, so the least sum of
    # `baseline_runs` ranks is that of the lowest ones, at which U is 0.
    ranks = baseline_runs + other_runs
    ways = np.zeros((baseline_runs + 1, baseline_runs * ranks + 1))
    ways[0, 0] = 1
    for rank in range(ranks):
        ways[1:, rank:] += ways[:-1, : ways.shape[1] - rank].copy()
    least = baseline_runs * (baseline_runs - 1) // 2
    counts = ways[baseline_runs, least : least + baseline_runs * other_runs + 1]
    tail: Floats = np.cumsum(counts) / counts.sum()
    return tail[: baseline_runs * other_runs // 2 + 1]


def _normal_lower_tail(baseline_runs: int, other_runs: int) -> Floats:
    product = baseline_runs * other_runs
    deviation = sqrt(product * (baseline_runs + other_runs + 1) / 12)
    # By erfc and not by NormalDist().cdf, which is 1 + erf: that loses what is far out in the tail.
    scaled = (product / 2 - 0.5 - np.arange(product // 2 + 1)) / (deviation * sqrt(2))
    return np.fromiter(map(erfc, scaled.tolist()), np.float64, scaled.size) / 2
