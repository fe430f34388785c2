"""Summaries of values: the median and its interval, the geometric mean of several ratios, and outliers."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, exp, fsum, log

import numpy as np

from gpuagent_collector.statistics.shift import Scale, Sides, Values, estimate_shift


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometricMean:
    """The geometric mean of the ratios of several pairs, each with the same weight.

    Attributes:
        pairs: their number.
        ratio: the mean of their estimates.
        low, high: its interval; None: too few runs for one.
        alpha: 1 less the interval's confidence, at most.
    """

    pairs: int
    ratio: float
    low: float | None
    high: float | None
    alpha: float


def median(values: Values) -> float:
    """Return the median of at least one value, without NaN. It is numpy's, which imports masked arrays for it."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    return float(ordered[(ordered.size - 1) // 2] + ordered[ordered.size // 2]) / 2


def median_interval(values: Sequence[float], *, alpha: float = 0.05) -> tuple[float, float] | None:
    """Return the distribution-free 1 - alpha interval of the median; None for too few values.

    Its ends are two of the values, by the sign test: it takes 6 values for 95 %.
    """
    # ways: in how many of the 2^n ways to fall on either side of the median up to `beyond` of the values are below it.
    beyond, ways = 0, 1
    while 2 * ways / 2 ** len(values) <= alpha:
        beyond += 1
        ways += comb(len(values), beyond)
    ranked = sorted(values)
    return (ranked[beyond - 1], ranked[-beyond]) if beyond else None


def geometric_mean(pairs: Sequence[Sides], *, alpha: float = 0.05) -> GeometricMean | None:
    """Return the geometric mean of the ratios of at least one pair; None where some pair has no ratio.

    Its interval goes from the geometric mean of the low ends to that of the high ends of the pairs' intervals at
    alpha divided by their number. These hold together with at least 1 - alpha (Bonferroni), and then the mean is
    inside. It is about these pairs, not about others that might have been measured.
    """
    shifts = [estimate_shift(*pair, alpha=alpha / len(pairs)) for pair in pairs]
    if any(shift.scale is not Scale.RATIO for shift in shifts):
        return None
    return GeometricMean(
        pairs=len(pairs),
        ratio=_mean([shift.estimate for shift in shifts]) or 0.0,
        low=_mean([shift.low for shift in shifts]),
        high=_mean([shift.high for shift in shifts]),
        alpha=alpha,
    )


def _mean(ratios: Sequence[float | None]) -> float | None:
    known = [log(ratio) for ratio in ratios if ratio is not None]
    return exp(fsum(known) / len(known)) if len(known) == len(ratios) else None


def outliers(values: Sequence[float], *, least_share: float = 0.02) -> list[int]:
    """Return the indices of values that are far from their median.

    Far is more than 5 + 50 / n robust standard deviations (1.4826 times the median absolute deviation), and more than
    the share `least_share` of the median. Of sets of five normal values about one in sixty has such a value, of six to
    nine about one in two hundred, of larger ones fewer. Fewer than five values have no outliers.
    """
    if len(values) < 5:
        return []
    deviations = 5 + 50 / len(values)
    array = np.asarray(values, dtype=np.float64)
    distance = np.abs(array - median(array))
    far = np.maximum(deviations * 1.4826 * median(distance), least_share * abs(median(array)))
    return [int(index) for index in np.flatnonzero(distance > far)]
