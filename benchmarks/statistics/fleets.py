"""Fleets and histories: outliers with a false discovery rate, tolerance intervals, changes of level."""

from collections.abc import Callable, Mapping
from math import log, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from benchmarks.statistics.tables import NOISE, Draw, Floats, Table, share
from gpuagent_collector.statistics.changes import find_changes, share_level
from gpuagent_collector.statistics.outlying import p_values, q_values
from gpuagent_collector.statistics.tolerance import tolerance_interval

_FIGURES = 6
_RATE = 0.05
_DELTA = 0.02

# Fault → the factor of each figure that it changes: throughput, clock, power, memory rate, link rate, waiting.
FAULTS: Mapping[str, Mapping[int, float]] = {
    "power cap, 10 % less": {0: 0.9, 2: 0.9},
    "half the clock under load": {0: 0.55, 1: 0.5, 2: 0.7},
    "slow rank, waits for nobody": {5: 0.05},
    "PCIe x8 for x16": {4: 0.5},
    "power cap, 3 % less": {0: 0.97, 2: 0.97},
}


def _find(fleet: Floats) -> NDArray[np.bool_]:
    """Return which figures (units × figures, logarithms) are found, as `collector outliers` finds them."""
    found = np.array([p_values(column.tolist()) for column in fleet.T]).T
    rates = np.array(q_values(found.ravel().tolist())).reshape(found.shape)
    far = np.abs(np.expm1(fleet - np.median(fleet, axis=0))) > _DELTA
    return np.asarray((rates <= _RATE) & far)


def _fleet(chance: np.random.Generator, units: int, draw: Callable[..., Floats]) -> Floats:
    """Return logarithms of figures of which a third of the variance is the unit's own, in all figures."""
    common = draw(chance, (units, 1))
    return np.asarray(np.sqrt(1 / 3) * common + np.sqrt(2 / 3) * draw(chance, (units, _FIGURES)))


def faults_found() -> Table:
    """One faulty unit in a fleet whose sound units differ by 1 %: how often it is found."""
    trials, rows = 300, []
    for fault, factors in FAULTS.items():
        row = [fault]
        for units in (5, 8, 16, 64):
            chance = np.random.default_rng(11)
            found = 0
            for _ in range(trials):
                fleet = _fleet(chance, units, NOISE["normal"])
                for figure, factor in factors.items():
                    fleet[0, figure] += log(factor)
                found += bool(_find(fleet)[0].any())
            row.append(share(found, trials))
        rows.append(row)
    return Table(header=["fault", "5 units", "8", "16", "64"], rows=rows)


def false_discoveries() -> Table:
    """Sound fleets with any false finding, and the false share of findings where an eighth of the units is capped."""
    trials, rows = 300, []
    for kind, draw in NOISE.items():
        row = [kind]
        for units in (8, 16, 64):
            chance = np.random.default_rng(12)
            alarms, shares, bad = 0, [], units // 8
            for _ in range(trials):
                alarms += bool(_find(_fleet(chance, units, draw)).any())
                fleet = _fleet(chance, units, draw)
                fleet[:bad, [0, 2]] += log(0.8)
                found = _find(fleet)
                true = int(found[:bad][:, [0, 2]].sum())
                shares.append((found.sum() - true) / max(1, found.sum()))
            row += [share(alarms, trials), f"{100 * float(np.mean(shares)):.1f}"]
        rows.append(row)
    header = ["noise", "8 units: any false, %", "false share, %", "16: any, %", "share", "64: any, %", "share"]
    return Table(header=header, rows=rows)


def tolerances() -> Table:
    """Intervals that hold at least 95 % of the population, by the number of peers; 95 % are promised."""
    trials, rows = 1500, []
    for kind, draw in NOISE.items():
        population = np.sort(draw(np.random.default_rng(13), (400_000,)))
        row = [kind]
        for peers in (8, 20, 50, 92, 93, 200):
            chance = np.random.default_rng(14)
            held = 0
            for sample in np.exp(draw(chance, (trials, peers))):
                interval = tolerance_interval(sample.tolist())
                if interval:
                    low, high = np.searchsorted(population, [log(interval.low), log(interval.high)])
                    held += int(high - low >= 0.95 * population.size)
            row.append(share(held, trials))
        rows.append(row)
    return Table(header=["peers are", "8", "20", "50", "92", "93", "200"], rows=rows)


def tolerances_of_parts() -> Table:
    """Nodes that differ as much as their eight GPUs do: intervals that hold at least 95 % of all GPUs."""
    trials, rows = 1500, []
    population = NormalDist(0, 0.01 * sqrt(2))
    for nodes in (8, 12, 20):
        chance = np.random.default_rng(17)
        fleets = chance.normal(0, 0.01, (trials, nodes, 1)) + chance.normal(0, 0.01, (trials, nodes, 8))
        row = [str(nodes)]
        for chosen in (fleets.reshape(trials, -1), fleets[:, :, 0]):
            intervals = filter(None, (tolerance_interval(np.exp(sample).tolist()) for sample in chosen))
            contents = (population.cdf(log(one.high)) - population.cdf(log(one.low)) for one in intervals)
            row.append(share(sum(content >= 0.95 for content in contents), trials))
        rows.append(row)
    return Table(header=["nodes of 8 GPUs", "every GPU counts, %", "one of each node, %"], rows=rows)


def few_days() -> Table:
    """Series of a few days without a change, where each run counts: those that show one."""
    trials, rows = 400, []
    for days, runs in ((1, 20), (2, 10), (4, 5), (7, 3)):
        row = [f"{days} days, {runs} runs each" if days > 1 else f"one day, {runs} runs"]
        for spread in (0, 0.5, 1):
            chance = np.random.default_rng(18)
            series = chance.normal(0, spread, (trials, days, 1)) + chance.normal(0, 1, (trials, days, runs))
            row.append(share(sum(bool(find_changes(one.ravel().tolist())) for one in series), trials))
        rows.append(row)
    return Table(header=["runs", "days alike: false, %", "days differ by 0.5 × runs", "1 ×"], rows=rows)


def changes() -> Table:
    """Series without a change that show one, and series that show a change in the middle, within one value of it."""
    trials, rows = 400, []
    for kind, draw in {**NOISE, "normal, each 0.3 of the last": _dragging}.items():
        row = [kind]
        for length in (10, 20, 60):
            series = draw(np.random.default_rng(15), (trials, length))
            row.append(share(sum(bool(find_changes(one.tolist())) for one in series), trials))
        for size in (1, 2, 3):
            series = draw(np.random.default_rng(16), (trials, 20))
            series[:, 10:] += 0.01 * size
            found = (find_changes(one.tolist()) for one in series)
            row.append(share(sum(any(abs(change.index - 10) <= 1 for change in one) for one in found), trials))
        rows.append(row)
    header = ["noise", "10 values: false, %", "20", "60", "20 values, 1 × spread: found, %", "2 ×", "3 ×"]
    return Table(header=header, rows=rows)


# Names of sets of histories → the number of values of each history.
_SETS: Mapping[str, tuple[int, ...]] = {
    "6 of 10 values": (10,) * 6,
    "3 of 20, 5 of 10": (20,) * 3 + (10,) * 5,
    "20, 8": (20, 8),
    "17 of 12": (12,) * 17,
    "9 of 12, 8 of 9": (12,) * 9 + (9,) * 8,
}


def histories() -> Table:
    """Sets of histories without a change: how many are tested, and the sets of which any shows one."""
    trials, rows = 1000, []
    for name, sizes in _SETS.items():
        tested = [(size, level) for size, level in zip(sizes, share_level(sizes, 0.05), strict=True) if level]
        row = [name, str(len(tested))]
        for draw in NOISE.values():
            chance = np.random.default_rng(19)
            false = (any(_changes(draw, chance, *one) for one in tested) for _ in range(trials))
            row.append(share(sum(false), trials))
        rows.append(row)
    normal, *others = NOISE
    return Table(header=["histories", "tested", f"{normal}: any false, %", *others], rows=rows)


def _changes(draw: Draw, chance: np.random.Generator, size: int, level: float) -> bool:
    return bool(find_changes(draw(chance, (size,)).tolist(), alpha=level))


def _dragging(chance: np.random.Generator, size: tuple[int, ...]) -> Floats:
    steps = chance.normal(0, 0.01, size)
    for index in range(1, size[1]):
        steps[:, index] = 0.3 * steps[:, index - 1] + np.sqrt(1 - 0.09) * steps[:, index]
    return steps
