"""Places in a series at which its level changed.

Binary segmentation (Vostrikova 1981) by ranks: of all places that leave enough values on both sides, the one at which
the mean ranks differ most, in standard deviations, is a change if random orders of the same values give so much in at
most a share alpha of cases. Both parts are then searched in the same way. So at most a share alpha of series without
any change show one, whatever their distribution, if their values are independent. Values that stay up or down together
for a while show more: give one value for each such while.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, comb

import numpy as np

from gpuagent_collector.statistics.shift import Floats, tie_near

# A part of fewer values could not have a level of its own.
LEAST_PART = 4

# Random orders: so many for each unit of 1 / alpha that the p-value is known well enough at alpha. At levels of many
# series so many in all, but never so few that no p-value could be as low as alpha.
_ORDERS_PER_LEVEL = 100
_MANY_ORDERS = 20_000
_FEWEST_PER_LEVEL = 5

# So many equal parts of the level are the most that one of several series takes.
_MOST_PARTS = 2

# Made at once: all orders of a long series would take gigabytes.
_PIECE = 500

_SEED = 20260101


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of level before the value of this index; `p_value` is that of random orders of its part."""

    index: int
    p_value: float


def find_least_p_value(size: int) -> float:
    """Return the smallest p-value of so many unequal values: that of two halves that are fully apart.

    An odd number has two such places, in the middle, and so the p-value of one value less.
    """
    return 2 / comb(size // 2 * 2, size // 2)


def share_level(sizes: Sequence[int], alpha: float) -> list[float | None]:
    """Return the level of each series, by its number of values; None: it is not tested.

    The levels add up to alpha, whatever the values are. A series that could show nothing takes no part of it. One of
    few values takes what halves that are fully apart need, up to two equal parts; the others share the rest equally.
    """
    least = 2 * LEAST_PART
    while tested := sorted((size, index) for index, size in enumerate(sizes) if size >= least):
        needs = [find_least_p_value(size) for size, _ in tested]
        if sum(needs) <= alpha and max(needs) <= _MOST_PARTS * alpha / len(tested):
            break
        least += 2
    levels: list[float | None] = [None] * len(sizes)
    rest = alpha
    for done, (size, index) in enumerate(tested):
        levels[index] = level = max(find_least_p_value(size), rest / (len(tested) - done))
        rest -= level
    return levels


def find_least_size(sizes: Sequence[int], alpha: float) -> int:
    """Return how many values each series takes at least, for all of them to be tested."""
    least = 2 * LEAST_PART
    while None in share_level([max(least, size) for size in sizes], alpha):
        least += 2
    return least


def find_changes(values: Sequence[float], *, alpha: float = 0.05) -> list[Change]:
    """Return the changes of level in the order of the series."""
    chance = np.random.default_rng(_SEED)
    found: list[Change] = []
    parts = [(0, len(values))]
    while parts:
        start, end = parts.pop()
        if end - start < 2 * LEAST_PART:
            continue
        ranks = _ranks(tie_near(values[start:end]))
        steps = _steps(ranks[None, :])[0]
        place = int(np.argmax(steps))
        p_value = _p_value(ranks, float(steps[place]), alpha, chance)
        if p_value <= alpha:
            index = start + LEAST_PART + place
            found.append(Change(index=index, p_value=p_value))
            parts += [(start, index), (index, end)]
    return sorted(found, key=lambda change: change.index)


def _p_value(ranks: Floats, largest: float, alpha: float, chance: "np.random.Generator") -> float:
    """Return the share of random orders with so large a step; above alpha a lower bound: counting stops there.

    That of two halves that are fully apart is exact.
    """
    if largest >= _steps(_ranks(np.arange(ranks.size, dtype=float))[None, :]).max():
        return find_least_p_value(ranks.size)
    orders = max(min(_MANY_ORDERS, ceil(_ORDERS_PER_LEVEL / alpha)), ceil(_FEWEST_PER_LEVEL / alpha))
    made = _PIECE * ceil(orders / _PIECE)
    as_large = 0
    for _ in range(made // _PIECE):
        drawn = chance.permuted(np.tile(ranks, (_PIECE, 1)), axis=1)
        as_large += int(np.count_nonzero(_steps(drawn).max(axis=1) >= largest))
        if 1 + as_large > alpha * (1 + made):
            break
    return (1 + as_large) / (1 + made)


def _ranks(values: Floats) -> Floats:
    """Return the ranks, equal values with their mean, less the mean of all."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Floats = (ends - (counts - 1) / 2)[inverse]
    centred: Floats = ranks - ranks.mean()
    return centred


def _steps(ranks: Floats) -> Floats:
    """Return for each series (row) and place the distance between the mean ranks before and after, standardised."""
    size = ranks.shape[1]
    before = np.arange(LEAST_PART, size - LEAST_PART + 1)
    sums = np.cumsum(ranks, axis=1)[:, before - 1]
    steps: Floats = np.abs(sums) / np.sqrt(before * (size - before) / size)
    # Rounded: sums in another order must not make equal steps differ.
    return np.round(steps, 9)
