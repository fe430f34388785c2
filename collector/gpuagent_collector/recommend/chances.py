"""Probabilities that each side is the best, by the bootstrap.

Nodes are drawn with replacement, and then runs within each of them, so that the spread between nodes counts where a
side has several. A side of one node is certain of its node only.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_DRAWS = 2000
_SEED = 20260101

# Fewer runs of a side show nothing of its spread.
_LEAST_RUNS = 3

# The values of a side's runs, each with the names of the nodes that ran it; less is better.
Runs = Sequence[tuple[str | None, float]]


def draw_medians(sides: Mapping[str, Runs]) -> Mapping[str, Floats] | None:
    """Return the medians of drawn runs of each side; None where one has too few runs."""
    if any(len(runs) < _LEAST_RUNS for runs in sides.values()):
        return None
    chance = np.random.default_rng(_SEED)
    return {side: _draw(runs, chance) for side, runs in sides.items()}


def _draw(runs: Runs, chance: np.random.Generator) -> Floats:
    by_node: dict[str | None, list[float]] = defaultdict(list)
    for node, value in runs:
        by_node[node].append(value)
    nodes = [np.asarray(values) for values in by_node.values()]
    if len(nodes) == 1:
        (values,) = nodes
        medians: Floats = np.median(values[chance.integers(values.size, size=(_DRAWS, values.size))], axis=1)
        return medians
    return np.array([_draw_once(nodes, chance) for _ in range(_DRAWS)])


def _draw_once(nodes: Sequence[Floats], chance: np.random.Generator) -> float:
    chosen = (nodes[number] for number in chance.integers(len(nodes), size=len(nodes)))
    return float(np.median(np.concatenate([chance.choice(values, values.size) for values in chosen])))


def share_best(medians: Mapping[str, Floats]) -> Mapping[str, float]:
    """Return the share of draws in which each side has the lowest median; equal ones share it."""
    every = np.stack(list(medians.values()))
    lowest = every == every.min(axis=0)
    return dict(zip(medians, (lowest / lowest.sum(axis=0)).mean(axis=1).tolist(), strict=True))


def least_certain(medians: Mapping[str, Floats]) -> str:
    """Return the side whose median scatters most, in proportion to it."""
    return max(medians, key=lambda side: float(np.std(medians[side]) / np.mean(medians[side])))
