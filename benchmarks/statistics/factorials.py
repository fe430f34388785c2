"""Factorial experiments whose runs are compared by one argument: in pairs of all else, with runs and cells missing."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import product
from typing import Any

import numpy as np

from benchmarks.statistics.tables import Floats, Table, share
from gpuagent_collector.compare.figures import compute_figures
from gpuagent_collector.compare.sweeps import find_options
from gpuagent_collector.runs.cells import Block, Cell, Layout
from gpuagent_collector.runs.data import Facts, Run
from gpuagent_collector.runs.facets import find_facet
from gpuagent_collector.statistics.shift import Shift

_FACET = find_facet("argument:optimizer")
_SIDES = ("sgd", "adam")
# Batch and workers, which are not compared.
_OTHERS = tuple(product((32, 128), (0, 4)))
_REPEATS = 4
_RATIO = 0.99
_ABSENT: Mapping[str, Any] = dict.fromkeys(field.name for field in fields(Run))


def factorials() -> Table:
    """Four repeats of 2 × 2 × 2 cells whose levels differ by far more than the noise, under drift of twice as much."""
    rows, trials = [], 2000
    for label, kept in _missing():
        for unpaired in (False, True):
            chance = np.random.default_rng(26)
            false, covered, widths = 0, 0, []
            for _ in range(trials):
                logs = _draw(chance)
                there = kept(chance)
                equal = _compare(logs, there, unpaired=unpaired)
                logs[1] += np.log(_RATIO)
                slower = _compare(logs, there, unpaired=unpaired)
                low, high = slower.low or 0.0, slower.high or np.inf
                false += equal.is_shown
                covered += low <= _RATIO <= high
                widths.append(high - low)
            width = np.median(widths)
            rows.append(
                [
                    f"{label}, {'independent' if unpaired else 'paired'}",
                    share(false, trials),
                    share(covered, trials),
                    f"{100 * width:.1f}" if np.isfinite(width) else "–",
                ]
            )
    return Table(header=["runs, analysis", "A/A called different, %", "coverage, %", "width, %"], rows=rows)


def dependences() -> Table:
    """Sweeps of 2 × 2 commands in rounds, under drift of twice the noise: how often options are said to depend."""
    rows, trials = [], 500
    for repeats, noise in product((3, 4, 7), (0.01, 0.05, 0.15)):
        row = [f"{repeats} runs of each, noise of {100 * noise:.0f} %"]
        for ratio in (1.0, 1.25, 2.0):
            chance, found = np.random.default_rng(39), 0
            for _ in range(trials):
                logs = chance.normal(0, noise, (2, 2, repeats)) + chance.normal(0, 2 * noise, (1, 1, repeats))
                logs += np.log(1.5) * np.array([[[0], [0]], [[1], [1]]])
                logs[1, 1] += np.log(ratio)
                found += _depend(logs)
            row.append(share(found, trials))
        rows.append(row)
    return Table(header=["runs", "none, %", "1.25 times, %", "2 times, %"], rows=rows)


def _depend(logs: Floats) -> bool:
    """Return whether `collector compare --by command` says that two options depend on each other."""
    metrics: dict[str, dict[str, float]] = {}
    cells = []
    for one, other in np.ndindex(2, 2):
        side = f"--one {one} --other {other}"
        runs = []
        for repeat, value in enumerate(np.exp(logs[one, other]).tolist()):
            command = ("train", "--one", str(one), "--other", str(other))
            about = {"run_id": f"{one}-{other}-{repeat}", "workload": "train", "parameters": "{}", "command": command}
            about |= {"side": side, "status": "succeeded"}
            placed = {"experiment": "x", "nodes": "node", "node_count": 1, "repeat": repeat}
            runs.append(Run(**{**_ABSENT, **about, **placed}))
            metrics[f"{one}-{other}-{repeat}"] = {"throughput": value}
        cells.append(Cell(side=side, runs=tuple(runs), others={}))
    block = Block(workload="train", parameters={}, held={}, cells=tuple(cells))
    sides = tuple(cell.side for cell in cells)
    layout, facts = (
        Layout(facet=find_facet("command"), sides=sides, blocks=(block,), left_out=()),
        Facts(metrics=metrics),
    )
    return bool(find_options(layout, facts, compute_figures(layout, facts, metric=None, delta=0.02))[1])


def _missing() -> Iterator[tuple[str, Any]]:
    """Yield what is missing, and a function that returns which runs are there: side × cell × repeat."""
    size = len(_SIDES), len(_OTHERS), _REPEATS

    def without_a_cell(_chance: np.random.Generator) -> Any:
        there = np.ones(size, bool)
        there[1, -1] = False
        return there

    yield "all", lambda _chance: np.ones(size, bool)
    yield "a fifth missing", lambda chance: chance.random(size) > 0.2
    yield "a cell missing on one side", without_a_cell


def _draw(chance: np.random.Generator) -> Floats:
    """Return the logarithms of all runs: cells of their own speed, repeats of their own drift, and the noise of 1 %."""
    own = chance.normal(0, 0.3, (1, len(_OTHERS), 1))
    drift = chance.normal(0, 2 * 0.01, (1, 1, _REPEATS))
    return np.asarray(own + drift + chance.normal(0, 0.01, (len(_SIDES), len(_OTHERS), _REPEATS)))


def _compare(logs: Floats, there: Any, *, unpaired: bool) -> Shift:
    """Return the distance of both sides, as `collector compare --by argument:optimizer` finds it."""
    metrics: dict[str, dict[str, float]] = {}
    cells = []
    for number, side in enumerate(_SIDES):
        runs = [_run(side, *place) for place in np.argwhere(there[number]).tolist()]
        metrics |= {
            run.run_id: {"throughput": value}
            for run, value in zip(runs, np.exp(logs[number][there[number]]).tolist(), strict=True)
        }
        cells.append(Cell(side=side, runs=tuple(runs), others={}, compared=_FACET.arguments))
    block = Block(workload="train", parameters={}, held={}, cells=tuple(cells))
    layout = Layout(facet=_FACET, sides=_SIDES, blocks=(block,), left_out=())
    (test,) = compute_figures(layout, Facts(metrics=metrics), metric=None, delta=0.02, unpaired=unpaired).tests
    return test.judgement.shift


def _run(side: str, other: int, repeat: int) -> Run:
    batch, workers = _OTHERS[other]
    command = ("train", f"--optimizer={side}", f"--batch={batch}", f"--workers={workers}")
    about = {"run_id": f"{side}-{other}-{repeat}", "workload": "train", "parameters": "{}", "command": command}
    return Run(**{**_ABSENT, **about, "experiment": "x", "nodes": "node", "node_count": 1, "repeat": repeat})
