"""Values that are far from others of their kind, with p-values and a bounded share of false ones among those found.

Location is the median. The scale is Rousseeuw and Croux's Qn (1993): a low quantile of the distances of all pairs. Up
to half of the values cannot spoil it, and it uses 82 % of normal data's information. A distance in such scales has
about a t distribution: its degrees of freedom and the correction of Qn for few values are fitted to simulations of
normal values, and the degrees are at most five, for tails that are heavier than normal (docs/statistics.md).
"""

from collections.abc import Sequence
from math import exp, lgamma, pi, sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# With fewer values the distance of one says nothing about the others.
LEAST_VALUES = 5

# The distances of all pairs of more values would take gigabytes; so many estimate the scale well enough.
_MOST_VALUES = 2000

# Of normal values: Qn times this is their standard deviation.
_QN_NORMAL = 2.2219

# Sound units scatter with heavier tails than normal ones: with more, many findings in large fleets would be false.
_MOST_FREEDOM = 5.0

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


def p_values(values: Sequence[float]) -> list[float] | None:
    """Return for each value the two-sided probability of one so far from the others by chance; None for too few.

    Where more than half of the values are equal, the scale is 0: then a value that differs has p = 0, and its size
    alone says something.
    """
    if len(values) < LEAST_VALUES:
        return None
    array = np.asarray(values, dtype=np.float64)
    distances = np.abs(array - np.median(array))
    scale = _scale(array)
    freedom = min(0.75 * array.size - 2.25, _MOST_FREEDOM)
    if scale == 0:
        return [0.0 if distance else 1.0 for distance in distances.tolist()]
    return [t_two_sided(distance / scale, freedom) for distance in distances.tolist()]


def _scale(values: Floats) -> float:
    """Return Qn, corrected for few values; of very many, that of an even choice of them."""
    if values.size > _MOST_VALUES:
        values = np.sort(values)[np.linspace(0, values.size - 1, _MOST_VALUES).astype(np.intp)]
    first, second = np.triu_indices(values.size, 1)
    distances = np.abs(values[first] - values[second])
    half = values.size // 2 + 1
    rank = half * (half - 1) // 2 - 1
    correction = values.size / (values.size + (3.2 if values.size % 2 else 6.0))
    return float(np.partition(distances, rank)[rank]) * _QN_NORMAL * correction


def t_two_sided(distance: float, freedom: float) -> float:
    """Return P(|T| >= distance) of Student's t.

    With x = sqrt(freedom) cot(angle) the tail is the integral of sin(angle)^(freedom - 1) from 0.
    """
    angle = float(np.arctan2(sqrt(freedom), distance))
    integral = angle / 2 * float(_WEIGHTS @ np.sin(angle * (_NODES + 1) / 2) ** (freedom - 1))
    return min(1.0, 2 * exp(lgamma((freedom + 1) / 2) - lgamma(freedom / 2)) / sqrt(pi) * integral)


def q_values(p_values: Sequence[float]) -> list[float]:
    """Return for each hypothesis the lowest false discovery rate at which Benjamini and Hochberg (1995) reject it.

    Rejecting all with a q-value up to a rate keeps the expected share of false ones among them at most there, for
    independent tests and for those that err together.
    """
    count = len(p_values)
    lowest, found = 1.0, [1.0] * count
    for before, index in enumerate(sorted(range(count), key=p_values.__getitem__, reverse=True)):
        lowest = min(lowest, p_values[index] * count / (count - before))
        found[index] = lowest
    return found
