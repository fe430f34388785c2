"""Comparisons of two sides: false alarms, coverage, widths, equality, families, plans."""

from math import log
from statistics import median

import numpy as np

from benchmarks.statistics.tables import NOISE, Floats, Table, share
from gpuagent_collector.statistics.repeats import repeats_to_differ, repeats_to_equal
from gpuagent_collector.statistics.shift import Sides, estimate_shift
from gpuagent_collector.statistics.strata import stratified_shift
from gpuagent_collector.statistics.summaries import geometric_mean, median_interval
from gpuagent_collector.statistics.verdicts import Verdict, judge

_TRIALS = 4000
_TINY = 1e-9

# Whether runs are pairs, and the runs of each side.
_SIZES = ((False, 4, 4), (False, 7, 7), (False, 20, 20), (False, 5, 20), (True, 6, 6), (True, 7, 7), (True, 20, 20))


def pairs_under_drift() -> Table:
    """Seven blocks of two runs: what each repeat has in common is `drift` times the noise of 1 %."""
    rows = []
    for drift in (0, 1, 2, 4):
        for matched in (True, False):
            chance = np.random.default_rng(1)
            common = chance.normal(0, drift * 0.01, (_TRIALS, 7))
            sides = [np.exp(common + chance.normal(0, 0.01, common.shape)) for _ in range(2)]
            shifts = [estimate_shift(one, two, matched) for one, two in zip(*sides, strict=True)]
            known = [(shift.low or 0.0, shift.high or np.inf) for shift in shifts]
            rows.append(
                [
                    f"{drift} × noise, {'paired' if matched else 'unpaired'}",
                    share(sum(shift.is_shown for shift in shifts), _TRIALS),
                    share(sum(low <= 1 <= high for low, high in known), _TRIALS),
                    f"{100 * median(high - low for low, high in known):.1f}",
                ]
            )
    for label, series in (("random walk of 1 × noise a run", _walking), ("each run 0.5 of the last", _following)):
        for matched in (True, False):
            chance = np.random.default_rng(1)
            one, two = np.moveaxis(np.exp(_by_side(chance, series(chance, (_TRIALS, 14)))), 2, 0)
            shifts = [estimate_shift(*pair, matched) for pair in zip(one, two, strict=True)]
            known = [(shift.low or 0.0, shift.high or np.inf) for shift in shifts]
            rows.append(
                [
                    f"{label}, {'paired' if matched else 'unpaired'}",
                    share(sum(shift.is_shown for shift in shifts), _TRIALS),
                    share(sum(low <= 1 <= high for low, high in known), _TRIALS),
                    f"{100 * median(high - low for low, high in known):.1f}",
                ]
            )
    return Table(header=["drift, analysis", "A/A called different, %", "coverage, %", "width, %"], rows=rows)


def _walking(chance: np.random.Generator, size: tuple[int, int]) -> Floats:
    walk: Floats = np.cumsum(chance.normal(0, 0.01, size), axis=1) + chance.normal(0, 0.01, size)
    return walk


def _following(chance: np.random.Generator, size: tuple[int, int]) -> Floats:
    runs = chance.normal(0, 0.01, size)
    for index in range(1, size[1]):
        runs[:, index] = 0.5 * runs[:, index - 1] + np.sqrt(0.75) * runs[:, index]
    return runs


def _by_side(chance: np.random.Generator, runs: Floats) -> Floats:
    """Return consecutive runs by repeat and side: odd repeats are shuffled, each even one has the reverse order."""
    blocks = runs.reshape(len(runs), -1, 2)
    odd = chance.integers(0, 2, (len(blocks), (blocks.shape[1] + 1) // 2))
    turned = np.stack([odd, 1 - odd], axis=2).reshape(len(blocks), -1)[:, : blocks.shape[1]]
    sided: Floats = np.where(turned[:, :, None], blocks[:, :, ::-1], blocks)
    return sided


def nodes_as_runs() -> Table:
    """Equal sides on nodes of their own that differ, where each run counts: comparisons that are called different."""
    trials, rows = 1500, []
    for nodes, runs in ((2, 5), (4, 5), (8, 3), (8, 1)):
        row = [f"{nodes} nodes, {runs} runs each" if runs > 1 else f"{nodes} nodes, one run each"]
        for spread in (0, 0.5, 1):
            chance = np.random.default_rng(9)
            own = chance.normal(0, 0.01 * spread, (trials, 2, nodes, 1))
            values = np.exp(own + chance.normal(0, 0.01, (trials, 2, nodes, runs))).reshape(trials, 2, -1)
            row.append(share(sum(estimate_shift(*sides).is_shown for sides in values), trials))
        rows.append(row)
    return Table(header=["runs of a side", "nodes alike, %", "nodes differ by 0.5 × runs", "1 ×"], rows=rows)


def false_alarms() -> Table:
    """Comparisons without a difference, by the form of the noise and the runs a side."""
    rows = []
    for kind, draw in NOISE.items():
        row = [kind]
        for matched, runs, more in _SIZES:
            chance = np.random.default_rng(2)
            sides = [np.exp(draw(chance, (_TRIALS, number))) for number in (runs, more)]
            found = sum(estimate_shift(one, two, matched).is_shown for one, two in zip(*sides, strict=True))
            row.append(share(found, _TRIALS))
        rows.append(row)
    unequal = {"normal, one side 4 × the spread": "normal", "one side skewed, the other normal": "skewed"}
    for label, other in unequal.items():
        factor = 4 if other == "normal" else 1
        row = [label]
        for matched, runs, more in _SIZES:
            chance = np.random.default_rng(2)
            narrow = NOISE["normal"](chance, (_TRIALS, more))
            wide = factor * NOISE[other](chance, (_TRIALS, runs))
            # Equal in the median, which is what compare reports of a side.
            wide -= 0.01 * (log(2) - 1) if other == "skewed" else 0.0
            found = sum(
                estimate_shift(np.exp(one), np.exp(two), matched).is_shown
                for one, two in zip(wide, narrow, strict=True)
            )
            row.append(share(found, _TRIALS))
        rows.append(row)
    return Table(header=["noise", "4 + 4", "7 + 7", "20 + 20", "5 + 20", "6 pairs", "7 pairs", "20 pairs"], rows=rows)


def equality() -> Table:
    """Verdicts of seven runs a side at a margin of 2 %, by the true ratio and the spread."""
    rows = []
    for ratio in (1.0, 1.01, 1.02, 1.04):
        row = [f"{ratio:g}"]
        for spread in (0.003, 0.01):
            pairs = _lognormal(7, spread, ratio)
            found = [judge([Sides(*pair)])[0].verdict for pair in pairs]
            row += [share(found.count(verdict), _TRIALS) for verdict in (Verdict.EQUAL, Verdict.DIFFERS)]
        rows.append(row)
    header = ["true ratio", "spread 0.3 %: `=`", "`differs`", "spread 1 %: `=`", "`differs`"]
    return Table(header=header, rows=rows)


def families() -> Table:
    """Families of comparisons, some with a true difference of 10 %: those with a false one, and true ones found."""
    rows = []
    for size, true in ((1, 0), (4, 0), (4, 2), (12, 0), (12, 6)):
        trials = 800
        values = np.exp(np.random.default_rng(4).normal(0, 0.02, (trials, size, 2, 9)))
        values[:, :true, 1] *= 1.1
        judged = [
            [one.verdict is Verdict.DIFFERS for one in judge([Sides(*pair) for pair in family], delta=_TINY)]
            for family in values
        ]
        alone = [[estimate_shift(*pair).is_shown for pair in family] for family in values]
        rows.append(
            [
                f"{size}, {true}",
                share(sum(any(found[true:]) for found in judged), trials),
                share(sum(any(found[true:]) for found in alone), trials),
                share(sum(map(sum, (found[:true] for found in judged))), true * trials) if true else "–",
            ]
        )
    return Table(header=["comparisons, different", "false, Holm, %", "false, each at 5 %", "found, Holm, %"], rows=rows)


def equal_families() -> Table:
    """Families of seven runs a side whose ratios are all at the margin: those with a false `=`."""
    trials, rows = 1500, []
    for size in (1, 4, 12):
        row = [str(size)]
        for spread in (0.003, 0.01):
            values = np.exp(np.random.default_rng(7).normal(0, spread, (trials, size, 2, 7)))
            values[:, :, 1] *= 1.02
            judged = [[one.verdict for one in judge([Sides(*pair) for pair in family])] for family in values]
            row.append(share(sum(Verdict.EQUAL in found for found in judged), trials))
        rows.append(row)
    return Table(header=["comparisons", "spread 0.3 %: any false `=`, %", "spread 1 %"], rows=rows)


def other_intervals() -> Table:
    """Coverage of the median's interval, and of the geometric mean of four ratios."""
    rows = []
    for kind, draw in NOISE.items():
        chance = np.random.default_rng(5)
        truth = float(np.median(draw(np.random.default_rng(6), (400_000,))))
        samples = draw(chance, (_TRIALS, 9))
        held = sum(bool((ends := median_interval(row.tolist())) and ends[0] <= truth <= ends[1]) for row in samples)
        values = np.exp(draw(chance, (_TRIALS // 4, 4, 2, 9)))
        means = [geometric_mean([Sides(*pair) for pair in family]) for family in values]
        covered = sum(bool(mean and mean.low and mean.high and mean.low <= 1 <= mean.high) for mean in means)
        rows.append([kind, share(held, _TRIALS), share(covered, _TRIALS // 4)])
    return Table(header=["noise", "median of 9, %", "geometric mean of 4 ratios, 9 runs each, %"], rows=rows)


# Pairs or not, the runs of both sides in each workload, and what a repeat's runs have in common, times the noise.
_STRATA: tuple[tuple[str, bool, tuple[tuple[int, int], ...], float], ...] = (
    ("3 of 4 and 4 runs", False, ((4, 4),) * 3, 0.0),
    ("3 of 7 pairs, drift of 2 × noise", True, ((7, 7),) * 3, 2.0),
    ("4 and 4, 9 and 9, 3 and 12 runs", False, ((4, 4), (9, 9), (3, 12)), 0.0),
    ("7 and 7, and 5 cells with a run a side", False, ((7, 7), *((1, 1),) * 5), 0.0),
    ("60 and 60, 7 and 7 runs", False, ((60, 60), (7, 7)), 0.0),
)


def workloads_together() -> Table:
    """Workloads of different scales and a noise of 1 %: the test of all together, and what each alone shows."""
    trials, rows = 1000, []
    for label, matched, sizes, drift in _STRATA:
        chance = np.random.default_rng(9)
        false = covered = found = alone = 0
        for _ in range(trials):
            equal, slower = (
                [_stratum(chance, runs, ratio, drift, matched=matched) for runs in sizes] for ratio in (1.0, 0.99)
            )
            shift, other = stratified_shift(equal), stratified_shift(slower)
            false += bool(shift and shift.is_shown)
            covered += bool(other and (other.low or 0.0) <= 0.99 <= (other.high or np.inf))
            found += bool(other and other.is_shown)
            alone += any(one.verdict is Verdict.DIFFERS for one in judge(slower, delta=_TINY))
        rows.append([label, *(share(number, trials) for number in (false, covered, found, alone))])
    header = ["workloads", "A/A called different, %", "coverage, %", "1 % found together, %", "in any one, by Holm, %"]
    return Table(header=header, rows=rows)


def _stratum(chance: np.random.Generator, runs: tuple[int, int], ratio: float, drift: float, *, matched: bool) -> Sides:
    scale, common = chance.normal(0, 2), chance.normal(0, drift * 0.01, max(runs))
    before, after = (np.exp(scale + common[:number] + chance.normal(0, 0.01, number)) for number in runs)
    return Sides(before, ratio * after, matched)


def plans() -> Table:
    """The power that planned repeats reach, by another simulation than the plan's."""
    rows = []
    for spread, effect, matched in ((0.01, 0.02, False), (0.01, 0.02, True), (0.02, 0.02, True), (0.01, 0.0, False)):
        row = [f"{effect:.0%} at a spread of {spread:.0%}" if effect else f"equality to 2 % at {spread:.0%}"]
        row[0] += ", paired" if matched else ""
        for power in (0.8, 0.9):
            plan = repeats_to_differ if effect else repeats_to_equal
            repeats = plan(spread, effect or 0.02, power=power, level=0.05, matched=matched) or 0
            wanted = Verdict.DIFFERS if effect else Verdict.EQUAL
            delta = _TINY if effect else 0.02
            pairs = _lognormal(repeats, spread, 1 + effect)
            found = sum(judge([Sides(one, two, matched)], delta=delta)[0].verdict is wanted for one, two in pairs)
            row += [str(repeats), share(found, _TRIALS)]
        rows.append(row)
    header = ["to show", "repeats for 80 %", "reached, %", "repeats for 90 %", "reached, %"]
    return Table(header=header, rows=rows)


def _lognormal(runs: int, spread: float, ratio: float) -> Floats:
    pairs = np.exp(np.random.default_rng(3).normal(0, spread, (_TRIALS, 2, runs)))
    pairs[:, 1] *= ratio
    return pairs
