"""The power of an experiment: by simulation of the test and interval of comparisons.

Runs are drawn from normal distributions of the logarithm, the same on both sides except for the difference to be
shown. Matched runs are drawn as differences of such values. For many repeats, Noether's formula (1987) for the
Mann-Whitney test gives about the same numbers; a formula ignores that the exact test of few repeats rejects less often
than its level.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from math import inf, log1p

import numpy as np
from numpy.typing import NDArray

from gpuagent_collector.statistics.shift import matched_rejection_bound, rejection_bound

# Nobody plans for more.
MOST_REPEATS = 100

# Simulated experiments: the power is within 0.6 points, one standard deviation.
_TRIALS = 4000

_SEED = 20260101


def repeats_to_differ(spread: float, effect: float, *, power: float, level: float, matched: bool = False) -> int | None:
    """Return the repeats a side after which a ratio of 1 + effect is called different with probability `power`.

    Args:
        spread: standard deviation of the runs' logarithms; 0 where they are all equal.
        effect: above 0.
        power: between 0 and 1.
        level: significance level of the test.
        matched: whether the runs of a repeat are pairs, and `spread` is without what a pair has in common.

    Returns: None where it takes more than MOST_REPEATS.
    """
    return _fewest(partial(power_to_differ, _in_deviations(effect, spread), level=level, matched=matched), power)


def repeats_to_equal(spread: float, delta: float, *, power: float, level: float, matched: bool = False) -> int | None:
    """Return the same for sides without a difference that shall be called equal to within `delta`."""
    return _fewest(partial(power_to_equal, _in_deviations(delta, spread), level=level, matched=matched), power)


def power_to_differ(shift: float, repeats: int, *, level: float, matched: bool = False) -> float:
    """Return the share of experiments that call sides `shift` standard deviations apart different."""
    baseline, other = _draws()[:, :, :repeats]
    above, all_shifts = _shifts_above(baseline, other + shift, matched)
    return float(np.mean(np.minimum(above, all_shifts - above) < _bound(repeats, level, matched)))


def power_to_equal(margin: float, repeats: int, *, level: float, matched: bool = False) -> float:
    """Return the share of experiments with equal sides whose interval is within ± `margin` standard deviations."""
    baseline, other = _draws()[:, :, :repeats]
    above_margin, all_shifts = _shifts_above(baseline, other - margin, matched)
    below_margin = all_shifts - _shifts_above(baseline, other + margin, matched)[0]
    return float(np.mean(np.maximum(above_margin, below_margin) < _bound(repeats, level, matched)))


def _bound(repeats: int, level: float, matched: bool) -> int:
    return matched_rejection_bound(repeats, level) if matched else rejection_bound(repeats, repeats, level)


def _in_deviations(share: float, spread: float) -> float:
    return log1p(share) / spread if spread else inf


def _fewest(power_of: Callable[[int], float], power: float) -> int | None:
    """Return the fewest repeats that reach the power, which grows with them."""
    low, high = 1, 2  # `low` is too few
    while power_of(high) < power:
        if high == MOST_REPEATS:
            return None
        low, high = high, min(2 * high, MOST_REPEATS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power_of(middle) >= power else (middle, high)
    return high


@lru_cache(maxsize=1)
def _draws() -> NDArray[np.float64]:
    """Return standard normal values, shape (2, trials, repeats). All sizes share them, so that power grows evenly."""
    return np.random.default_rng(_SEED).normal(size=(2, _TRIALS, MOST_REPEATS))


def _shifts_above(
    baseline: NDArray[np.float64], other: NDArray[np.float64], matched: bool
) -> tuple[NDArray[np.int64], int]:
    """Return for each experiment how many shifts are positive, and of how many: from ranks, as there are no ties."""
    repeats = baseline.shape[1]
    if matched:
        differences = other - baseline
        ranks = np.argsort(np.argsort(np.abs(differences), axis=1), axis=1) + 1
        return (ranks * (differences > 0)).sum(axis=1), repeats * (repeats + 1) // 2
    order = np.argsort(np.concatenate([baseline, other], axis=1), axis=1)
    above: NDArray[np.int64] = np.argsort(order, axis=1)[:, repeats:].sum(axis=1) - repeats * (repeats - 1) // 2
    return above, repeats * repeats
