"""The repeats that an experiment needs, by the spread of its runs and the power of its tests."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import inf, log1p, pi, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from gpuagent_collector.statistics.shift import (
    Floats,
    Values,
    least_pairs,
    matched_rejection_bound,
    rejection_bound,
)
from gpuagent_collector.statistics.tolerance import chi_squared_quantile

# Nobody plans for more.
MOST_REPEATS = 100

# The probabilities with which a new experiment shall show a difference that exists.
POWERS = (0.8, 0.9)

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


def fewest_repeats(
    to_show: Callable[..., int | None],
    share: float,
    pooled: float,
    matched: float | None,
    *,
    power: float,
    level: float,
) -> int | None:
    """Return the fewest repeats a side of pairs, or of runs that are too few for a test of pairs.

    Args:
        to_show: repeats_to_differ or repeats_to_equal.
        share: the effect, or what counts as equal.
        pooled: the standard deviation of runs that count as independent.
        matched: that of pairs; None: there are none.
        power, level: as in `to_show`.

    Returns: None where it takes more than MOST_REPEATS.
    """
    if matched is None:
        return to_show(pooled, share, power=power, level=level)
    pairs = to_show(matched, share, power=power, level=level, matched=True)
    if pairs != least_pairs(1, level):
        return pairs
    # More of them would be enough as well.
    return min(pairs, to_show(pooled, share, power=power, level=level) or pairs)


# Repeats that can show a difference show one of so many standard errors.
_MOST_ERRORS = 40.0


@lru_cache(maxsize=256)
def least_deviations(repeats: int, *, power: float, level: float, matched: bool) -> float | None:
    """Return the least difference, in standard deviations, that so many repeats show; None: they show none."""
    repeats = min(repeats, MOST_REPEATS)
    low, high = 0.0, _MOST_ERRORS / sqrt(max(repeats, 1))

    def is_enough(shift: float) -> bool:
        return power_to_differ(shift, repeats, level=level, matched=matched) >= power

    if repeats < 2 or not is_enough(high):
        return None
    # Power grows with the shift: beyond two shifts near that of normal theory nothing needs to be simulated.
    errors = NormalDist().inv_cdf(1 - level / 2) + NormalDist().inv_cdf(power)
    near = errors * sqrt(2 / repeats * pi / 3) * (1 + 1 / repeats)
    too_few = 0.985 * near if not is_enough(0.985 * near) else low
    enough = 1.02 * near if is_enough(1.02 * near) else high
    while high - low > 5e-3 * high:
        middle = (low + high) / 2
        if middle > too_few and (middle >= enough or is_enough(middle)):
            high = middle
        else:
            low = middle
    return high


@lru_cache(maxsize=1024)
def power_to_differ(shift: float, repeats: int, *, level: float, matched: bool = False) -> float:
    """Return the share of experiments that call sides `shift` standard deviations apart different."""
    baseline, other = _draws()[:, :, :repeats]
    above, all_shifts = _shifts_above(baseline, other + shift, matched)
    return float(np.mean(np.minimum(above, all_shifts - above) < _bound(repeats, level, matched)))


@lru_cache(maxsize=1024)
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
        order = np.argsort(np.abs(differences), axis=1)
        is_above = np.take_along_axis(differences > 0, order, axis=1)
        above: NDArray[np.int64] = np.matmul(is_above, np.arange(1, repeats + 1))
        return above, repeats * (repeats + 1) // 2
    is_other = np.argsort(np.concatenate([baseline, other], axis=1), axis=1) >= repeats
    above = np.matmul(is_other, np.arange(2 * repeats)) - repeats * (repeats - 1) // 2
    return above, repeats * repeats


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The spread of the runs' logarithms, so that 0.02 is about 2 %.

    Attributes:
        seen: the standard deviation, pooled over cells.
        cautious: the upper end of its one-sided 80 % interval, as Browne (1995) advises for planning: the spread of a
            few runs is below the true one about as often as above.
        freedom: its degrees of freedom.
    """

    seen: float
    cautious: float
    freedom: int


def matched_spread(tables: Iterable[Sequence[Sequence[float]] | Floats], pooled: Spread) -> Spread | None:
    """Return the spread of positive values without what their row, and what their column, has in common.

    Args:
        tables: rows are repeats, columns are cells that every repeat has.
        pooled: the spread within cells. It holds that of rows too, so where it is smaller, rows have nothing in common.

    Returns: None where no table has two rows and two columns.
    """
    squares, freedom = 0.0, 0
    for rows in tables:
        logs = np.log(np.asarray(rows, dtype=np.float64))
        if not logs.size:
            continue
        # From the first row and column, so that what is equal leaves exactly nothing.
        rest = logs - logs[0]
        rest -= rest[:, :1]
        rest += rest.mean() - rest.mean(axis=0) - rest.mean(axis=1, keepdims=True)
        squares += float(np.sum(rest**2))
        freedom += (logs.shape[0] - 1) * (logs.shape[1] - 1)
    matched = _spread(squares, freedom)
    return pooled if matched and pooled.seen < matched.seen else matched


def pooled_spread(cells: Iterable[Values]) -> Spread | None:
    """Return the spread within cells of positive values; None where no cell has two of them."""
    squares, freedom = 0.0, 0
    for values in cells:
        logs = np.log(np.asarray(values, dtype=np.float64))
        if logs.size:
            logs -= logs[0]  # so that equal values leave exactly nothing
            squares += logs.size * float(np.var(logs))
            freedom += logs.size - 1
    return _spread(squares, freedom)


def _spread(squares: float, freedom: int) -> Spread | None:
    if not freedom:
        return None
    seen = sqrt(squares / freedom)
    return Spread(seen=seen, cautious=seen * sqrt(freedom / chi_squared_quantile(0.2, freedom)), freedom=freedom)
