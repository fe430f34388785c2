"""Designs of experiments: a ratio divided among facts, stopping at planned looks, and the end of warm-up."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from math import exp, log
from statistics import fmean, median

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks.statistics.tables import NOISE, Floats, Table, share
from gpuagent.experiment import plan
from gpuagent.experiment.file import parse_experiment
from gpuagent_collector.answers.why_divided import unexplained
from gpuagent_collector.metrics.metric_sources import STEADY_STEPS
from gpuagent_collector.statistics.shift import Shift, Sides, estimate_shift
from gpuagent_collector.statistics.verdicts import Verdict, judge

# Ratios of three facts, and what no fact explains of the original ratio.
_FACTS = (0.9, 1.0, 0.97)
_REST = 0.95

# Of intervals at which sequential experiments stop.
_WIDTH = 0.02


def ladders() -> Table:
    """Ladders of three facts in nine blocks, which drift by four times the noise, with seven original runs a side."""
    trials, rows = 2000, []
    truth = np.cumsum([0.0, *map(log, _FACTS)])
    for kind, draw in NOISE.items():
        chance = np.random.default_rng(21)
        held, rest_held, every, false, widths = [0, 0, 0], 0, 0, 0, []
        for _ in range(trials):
            common = chance.normal(0, 4 * 0.01, (9, 1))
            rungs = np.exp(common + truth + draw(chance, (9, 4))).T
            parts = judge([Sides(one, two, matched=True) for one, two in pairwise(rungs)])
            found = [_holds(part.shift, fact) for part, fact in zip(parts, _FACTS, strict=True)]
            held = [count + one for count, one in zip(held, found, strict=True)]
            every += all(found)
            false += parts[1].verdict is Verdict.DIFFERS
            original = np.exp(draw(chance, (2, 7)))
            original[1] *= exp(float(truth[-1])) * _REST
            rest = unexplained(Sides(*original), Sides(rungs[0], rungs[-1], matched=True))
            rest_held += rest is not None and _holds(rest, _REST)
            widths.append((rest.high or 0) - (rest.low or 0) if rest else 0.0)
        shares = [share(count, trials) for count in (*held, every, rest_held, false)]
        rows.append([kind, *shares, f"{100 * median(widths):.1f}"])
    header = ["noise", "fact 1, %", "2 (none)", "3", "all three, %", "rest, %", "2 `differs`, %", "rest's width, %"]
    return Table(header=header, rows=rows)


def _holds(shift: Shift, ratio: float) -> bool:
    return (shift.low or 0) <= ratio <= (shift.high or np.inf)


def sequential() -> Table:
    """Experiments under drift that stop at the first look with an interval of 2 %: as planned, and at 95 % each."""
    trials, rows = 1500, []
    file = "name: x\nrepeats: 40\nuntil: 2%\nworkloads: [{workload: mnist}]\nanswer: [compare]\n"
    looks = plan.looks(parse_experiment(file.encode(), "x"))
    for kind, draw in NOISE.items():
        for alpha, rule in ((0.05 / len(looks), "planned"), (0.05, "95 % at each look")):
            chance = np.random.default_rng(22)
            held, blocks, narrow = 0, [], 0
            for _ in range(trials):
                common = chance.normal(0, 4 * 0.01, looks[-1])
                sides = np.exp(common + draw(chance, (2, looks[-1])))
                for look in looks:
                    shift = estimate_shift(sides[0][:look], sides[1][:look], matched=True, alpha=alpha)
                    if shift.low and (shift.high or np.inf) / shift.low - 1 <= _WIDTH:
                        narrow += 1
                        break
                held += _holds(shift, 1.0)
                blocks.append(look)
            rows.append([f"{kind}, {rule}", share(held, trials), share(narrow, trials), f"{fmean(blocks):.1f}"])
    return Table(header=["noise, rule", "coverage at the stop, %", "narrow enough, %", "blocks, mean"], rows=rows)


# Relative extra time of a step by its number, for a workload that warms up.
_WARM_UPS: Mapping[str, Callable[[Floats], Floats]] = {
    "none": np.zeros_like,
    "20 steps, twice as slow": lambda step: np.where(step < 20, 1.0, 0.0),
    "100 steps, 10 % slower": lambda step: np.where(step < 100, 0.1, 0.0),
    "decay of 30 steps from 50 %": lambda step: 0.5 * np.exp(-step / 30),
    "ramp over all steps, 10 %": lambda step: 0.1 * (1 - step / step.size),
}


def warm_ups() -> Table:
    """Runs of 500 steps that scatter by 5 %: what MSER-5 leaves out, and the rate with and without."""
    runs, steps, rows = 400, 500, []
    for label, extra in _WARM_UPS.items():
        chance = np.random.default_rng(24)
        seconds = (1 + extra(np.arange(float(steps)))) * np.exp(chance.normal(0, 0.05, (runs, steps)))
        with duckdb.connect() as store:
            number, step = np.divmod(np.arange(runs * steps), steps)
            store.register("given", pa.table({"run_id": number, "step": step, "wall_seconds": seconds.ravel()}))
            store.execute(
                "CREATE TABLE steps AS SELECT *, 0 AS rank, 'measure' AS phase, NULL::DOUBLE AS gpu_seconds,"
                " 1.0 AS items, make_timestamp(step * 1000000) AS time FROM given"
            )
            store.execute("CREATE TABLE lives AS SELECT DISTINCT run_id FROM steps")
            life = {"life_from": "1970-01-01", "life_to": "1971-01-01"}
            found = store.execute(
                f"SELECT steps_before, items_per_second FROM ({STEADY_STEPS.relation})", life
            ).fetchall()
        before, rates = np.array(found).T
        steady = exp(-(0.05**2) / 2)
        whole = 100 * (np.mean(steps / seconds.sum(axis=1)) / steady - 1)
        after = 100 * (rates.mean() / steady - 1)
        rows.append(
            [label, f"{median(before):.0f}", f"{np.quantile(before, 0.9):.0f}", f"{whole:+.1f}", f"{after:+.1f}"]
        )
    header = ["warm-up", "steps left out, median", "9 of 10 below", "rate of all steps, % off", "once steady"]
    return Table(header=header, rows=rows)


def orders() -> Table:
    """Equal cells on a node that slows down by half the noise from place to place: the order of seed 1, and others."""
    rows = []
    for cells in (2, 4, 8):
        text = f"name: x\nrepeats: 8\nworkloads: [{{workload: mnist, parameters: {{seed: {list(range(cells))}}}}}]\n"
        for label, mirrored in (("shuffled alone", False), ("every second reversed", True)):
            worst, covered = 1.0, []
            for seed in range(1, 21):
                places = _places(f"{text}seed: {seed}\n", mirrored=mirrored)
                chance = np.random.default_rng(25)
                logs = 0.005 * places + chance.normal(0, 0.01, (150, *places.shape))
                for other in range(1, cells):
                    shifts = [estimate_shift(np.exp(one[:, 0]), np.exp(one[:, other]), matched=True) for one in logs]
                    held = fmean((shift.low or 0) <= 1 <= (shift.high or np.inf) for shift in shifts)
                    covered.append(held)
                    worst = min(worst, held)
            rows.append([f"{cells} cells, {label}", f"{100 * fmean(covered):.1f}", f"{100 * worst:.1f}"])
    return Table(header=["order", "coverage over 20 seeds, %", "worst seed and cell, %"], rows=rows)


def _places(text: str, *, mirrored: bool) -> Floats:
    """Return the place of each cell (column) in each repeat (row), as experiments make them or shuffled alone."""
    blocks = plan.trials(parse_experiment(text.encode(), "x"))
    cells = parse_experiment(text.encode(), "x").cells
    if mirrored:
        return np.array([[[trial.cell for trial in block].index(cell) for cell in cells] for block in blocks], float)
    chance = np.random.default_rng([*text.encode()])
    return chance.permuted(np.tile(np.arange(float(len(cells))), (len(blocks), 1)), axis=1)


def peeking() -> Table:
    """Equal sides, looked at after each planned look until something `differs`: corrected and not."""
    trials, rows = 4000, []
    looks = (8, 12, 18, 27, 40)
    for kind, draw in NOISE.items():
        row = [kind]
        for alpha in (0.05 / len(looks), 0.05):
            sides: Floats = np.exp(draw(np.random.default_rng(23), (trials, 2, looks[-1])))
            found = sum(
                any(estimate_shift(one[:look], two[:look], True, alpha=alpha).is_shown for look in looks)
                for one, two in sides
            )
            row.append(share(found, trials))
        rows.append(row)
    return Table(header=["noise", "5 planned looks: ever `differs`, %", "95 % at each look"], rows=rows)
