"""Tolerance intervals, by order statistics or log-normal."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import comb, exp, log, sqrt
from statistics import NormalDist, fmean, stdev


def chi_squared_quantile(probability: float, freedom: int) -> float:
    """Return the quantile by Wilson and Hilferty (1931): for 0.2, within 1 % from 4 degrees of freedom on."""
    scale = 2 / (9 * freedom)
    return float(freedom * (1 - scale + NormalDist().inv_cdf(probability) * scale**0.5) ** 3)


class Method(Enum):
    """The assumption behind a tolerance interval."""

    # Order statistics (Wilks 1941): any distribution.
    ANY = "any distribution"
    # Howe's factor (1969) for the logarithms.
    LOG_NORMAL = "log-normal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """The range that holds at least the share `content` of a population, with probability `confidence`."""

    low: float
    high: float
    method: Method
    content: float
    confidence: float


# A few values say nothing about the tails: below this the factor is above 3.7 and depends on the normal form alone.
_LEAST_VALUES = 8


def tolerance_interval(values: Sequence[float], *, content: float = 0.95, confidence: float = 0.95) -> Tolerance | None:
    """Return the two-sided tolerance interval; None for fewer than 8 values, or some that are not positive.

    From 93 values on it holds for 95 % and 95 % whatever their distribution. Fewer are taken as log-normal, and the
    interval includes them all.
    """
    ranked = sorted(values)
    beyond = _beyond(len(ranked), content, confidence)
    if beyond:
        low, high, method = ranked[beyond - 1], ranked[-beyond], Method.ANY
    elif len(ranked) >= _LEAST_VALUES and ranked[0] > 0:
        logs = [log(value) for value in ranked]
        reach = _howe_factor(len(logs), content, confidence) * stdev(logs)
        # With tails that are heavier than normal, the values themselves reach further.
        low, high = min(ranked[0], exp(fmean(logs) - reach)), max(ranked[-1], exp(fmean(logs) + reach))
        method = Method.LOG_NORMAL
    else:
        return None
    return Tolerance(low=low, high=high, method=method, content=content, confidence=confidence)


def _beyond(count: int, content: float, confidence: float) -> int:
    """Return the highest rank from each end between which the content is; 0: not even the extremes suffice.

    The share of the population between the ends of rank r has the distribution Beta(n - 2 r + 1, 2 r).
    """
    rank, missed = 0, 0.0
    for outside in range(count):
        # missed: P(at most `outside` of n are beyond the content), of a binomial distribution.
        missed += comb(count, outside) * (1 - content) ** outside * content ** (count - outside)
        if missed > 1 - confidence:
            return rank
        if outside % 2:
            rank += 1
    return rank


def _howe_factor(count: int, content: float, confidence: float) -> float:
    """Return by how many standard deviations the interval of normal values reaches to each side of their mean."""
    spread = NormalDist().inv_cdf((1 + content) / 2) * sqrt(1 + 1 / count)
    return spread * sqrt((count - 1) / chi_squared_quantile(1 - confidence, count - 1))


def percentile(value: float, others: Sequence[float]) -> float:
    """Return the percentage of the others that are below the value; equal ones count half."""
    ranked = sorted(others)
    return 50 * (bisect_left(ranked, value) + bisect_right(ranked, value)) / len(ranked)
