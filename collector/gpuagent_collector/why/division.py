"""A ratio divided among the facts of a ladder, with what they leave unexplained."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import log

from gpuagent_collector.compare.comparison import Request
from gpuagent_collector.compare.figures import Test, compute_figures, values_of_sides
from gpuagent_collector.metrics import Metric
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.cells import Block, Cell, Layout
from gpuagent_collector.runs.data import Facts, load_facts
from gpuagent_collector.runs.facets import find_facet
from gpuagent_collector.runs.find import find_runs
from gpuagent_collector.statistics.shift import Scale, Shift, Sides, estimate_shift, least_pairs
from gpuagent_collector.why.ladder import LABEL, compare_sides
from gpuagent_common.errors import GpuAgentError

_FACET = find_facet(f"label:{LABEL}")

# With fewer pairs there is no interval at half of alpha, as the rest needs; then runs count as independent.
_PAIRS = least_pairs(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The effect of one fact, given those before it; the rungs' names are `test.baseline.side` and `test.other.side`.

    Attributes:
        fact: its name; of several rungs at once where those between have no runs that succeeded.
        share: of the sum of the parts' logarithms; None where the ladder is not shown to differ, or has no ratio.
    """

    fact: str
    test: Test
    share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """A divided ratio.

    Attributes:
        sides: foot and top.
        parts: the facts in their order; their tests are one family.
        ladder: the top rung against the foot.
        original: the sides in the runs that raised the question; None: no such runs.
        rest: the original ratio by that of the ladder; None: no such runs, or no ratio.
        outside: facts of rungs at the ladder's ends of which no run succeeded; they are in the rest.
    """

    sides: tuple[str, str]
    workload: str
    metric: Metric
    delta: float
    parts: tuple[Part, ...]
    ladder: Shift
    original: Shift | None
    rest: Shift | None
    outside: tuple[str, ...]


def has_ladder(ask: Ask, experiment: str) -> bool:
    """Return whether runs of an experiment are rungs. Raises MisuseError for an unknown experiment."""
    runs = find_runs(ask, _FACET, workload=None, experiment=experiment)
    return any(run.side is not None for run in runs)


def divide_ratio(ask: Ask, request: Request, experiment: str) -> Division:
    """Return the ratio of the sides divided among the rungs of the experiment.

    Raises:
        MisuseError: a side, facet or metric is unknown.
        GpuAgentError: fewer than two rungs have runs that succeeded.
    """
    layout, whole, every = _lay_out(ask, request, experiment)
    facts_of, outside = _name_facts(every, layout.sides)
    # The foot is the ladder's, in whatever order the sides are asked for.
    if layout.sides[0].partition(" ")[2] == request.values[1]:
        request = replace(request, values=(request.values[1], request.values[0]))
    facts = load_facts(ask, layout.run_ids, request.stat)
    figures = compute_figures(layout, facts, metric=request.metric, delta=request.delta)
    ladder = _sides_of(whole, facts, figures.primary)
    shift = estimate_shift(*ladder)
    logs = [test.judgement.shift for test in figures.tests]
    total = sum(log(each.estimate) for each in logs) if all(each.scale is Scale.RATIO for each in logs) else 0.0
    original = _original(ask, replace(request, metric=figures.primary.name))
    first, last = request.values
    if original:
        (first, last), values = original
    return Division(
        sides=(first, last),
        workload=layout.blocks[0].workload,
        metric=figures.primary,
        delta=request.delta,
        parts=tuple(
            Part(
                fact=facts_of[test.other.side],
                test=test,
                share=log(test.judgement.shift.estimate) / total if total and shift.is_shown else None,
            )
            for test in figures.tests
        ),
        ladder=shift,
        original=estimate_shift(*values) if original else None,
        rest=unexplained(values, ladder) if original else None,
        outside=outside,
    )


def unexplained(original: Sides, ladder: Sides, *, alpha: float = 0.05) -> Shift | None:
    """Return the ratio of the original sides divided by the ladder's; None where one has no ratio.

    Its interval goes from the low end of one by the high end of the other to the reverse, each at half of alpha. Both
    hold together with at least 1 - alpha (Bonferroni), and then the rest is inside.
    """
    over, under = (estimate_shift(*sides, alpha=alpha / 2) for sides in (original, ladder))
    if over.scale is not Scale.RATIO or under.scale is not Scale.RATIO:
        return None
    known = over.low is not None and under.low is not None
    return Shift(
        scale=Scale.RATIO,
        estimate=over.estimate / under.estimate,
        low=over.low / under.high if known and over.low and under.high else None,
        high=over.high / under.low if known and over.high and under.low else None,
        alpha=alpha,
        p_value=float("nan"),
    )


def _name_facts(rungs: Sequence[str], made: Sequence[str]) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Return the facts of each made rung against the made one before it, and those outside the made ones."""
    places = [rungs.index(rung) for rung in made]
    facts = [rung.partition(" ")[2] for rung in rungs]
    named = {rungs[last]: " + ".join(facts[first + 1 : last + 1]) for first, last in pairwise(places)}
    return named, (*facts[1 : places[0] + 1], *facts[places[-1] + 1 :])


def _lay_out(ask: Ask, request: Request, experiment: str) -> tuple[Layout, Layout, Sequence[str]]:
    """Return a layout with a block for each rung and the one before it, one with the first and last, and all rungs.

    Rungs without a run that succeeded are in no layout.
    """
    # The condition chooses the original runs.
    runs = find_runs(ask, _FACET, workload=request.workload, experiment=experiment)
    workload = next((run.workload for run in runs if run.side), "")
    of_rungs = [run for run in runs if run.side and run.workload == workload and run.status == "succeeded"]
    every = sorted({run.side for run in runs if run.side and run.workload == workload}, key=_number)
    names = [name for name in every if any(run.side == name for run in of_rungs)]
    if len(names) < 2:
        raise GpuAgentError(f"{experiment} has fewer than two rungs with runs that succeeded; see: collector runs")
    cells = [Cell(side=name, runs=tuple(run for run in of_rungs if run.side == name), others={}) for name in names]

    def layout(pairs: Sequence[tuple[Cell, Cell]]) -> Layout:
        blocks = tuple(Block(workload=workload, parameters={}, held={}, cells=pair) for pair in pairs)
        sides = tuple(dict.fromkeys(cell.side for pair in pairs for cell in pair))
        return Layout(facet=_FACET, sides=sides, blocks=blocks, left_out=())

    return layout(list(pairwise(cells))), layout([(cells[0], cells[-1])]), every


def _number(rung: str) -> tuple[int, str]:
    first = rung.partition(" ")[0]
    return int(first) if first.isdecimal() else 0, rung


def _sides_of(layout: Layout, facts: Facts, metric: Metric) -> Sides:
    block = layout.blocks[0]
    found = values_of_sides(facts, _PAIRS, block, block.cells[-1].side, metric)
    if not found.baseline or not found.other:
        raise GpuAgentError(f"the first or last rung has no run with the metric {metric.name}")
    return found


def _original(ask: Ask, request: Request) -> tuple[tuple[str, str], Sides] | None:
    """Return the sides, foot first, and their values in runs that are no rungs; None without such runs."""
    try:
        found = compare_sides(ask, replace(request, experiment=None))
    except GpuAgentError:
        return None
    block = found.layout.blocks[0]
    first, last = (cell.side for cell in block.cells if cell.runs)
    return (first, last), values_of_sides(found.facts, _PAIRS, block, last, found.figures.primary)
