"""Factorial experiments whose runs are compared by one argument: in pairs of all else, with runs and cells missing."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import product
from typing import Any

import numpy as np

from benchmarks.statistics.tables import Floats, Table, share
from gpuagent_collector.compare.figures import compute_figures
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
