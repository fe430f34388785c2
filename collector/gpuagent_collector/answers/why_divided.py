"""`collector plan --why` of an experiment that has run: the ratio of two sides, divided among the facts."""

import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import log
from typing import Any

from gpuagent_collector.answers.why import LABEL, compare_sides
from gpuagent_collector.compare.comparison import Request
from gpuagent_collector.compare.figures import Test, compute_figures, values_of_sides
from gpuagent_collector.metrics import Metric
from gpuagent_collector.present.answer import Answer
from gpuagent_collector.present.human import notation, ratio
from gpuagent_collector.present.table import Column, Table
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.cells import Block, Cell, Layout
from gpuagent_collector.runs.data import Run, load_facts
from gpuagent_collector.runs.facets import find_facet
from gpuagent_collector.runs.find import find_runs
from gpuagent_collector.runs.words import could_hide, interval, spoken, write_command, write_shift
from gpuagent_collector.statistics.shift import Scale, Shift, Sides, estimate_shift, least_pairs
from gpuagent_collector.statistics.verdicts import Verdict
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.text import harmless

_FACET = find_facet(f"label:{LABEL}")

# With fewer pairs there is no interval at half of alpha, as the rest needs; then runs count as independent.
_PAIRS = least_pairs(2)

# The experiment, and the number of repeats at the end of its name.
_RUN = ("gpuagent", "experiment", "run", "why.yaml")
_NUMBERED = re.compile(r"-\d+$")
# So many times the repeats are proposed where those that were made leave a fact open.
_MORE = 2


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
    experiment: str
    workload: str
    metric: Metric
    delta: float
    parts: tuple[Part, ...]
    ladder: Shift
    original: Shift | None
    rest: Shift | None
    outside: tuple[str, ...]


def divide_ratio(ask: Ask, request: Request, experiment: str) -> Division:
    """Return the ratio of the sides divided among the rungs of the experiment.

    Raises:
        MisuseError: a side, facet or metric is unknown.
        GpuAgentError: fewer than two rungs have runs that succeeded.
    """
    layout, whole, every = _lay_out(ask, request, experiment)
    places = [every.index(rung) for rung in layout.sides]
    named = [rung.partition(" ")[2] for rung in every]
    facts_of = {every[last]: " + ".join(named[first + 1 : last + 1]) for first, last in pairwise(places)}
    # The foot is the ladder's, in whatever order the sides are asked for.
    if layout.sides[0].partition(" ")[2] == request.values[1]:
        request = replace(request, values=(request.values[1], request.values[0]))
    facts = load_facts(ask, layout.run_ids, request.stat)
    figures = compute_figures(layout, facts, metric=request.metric, delta=request.delta)
    (block,) = whole.blocks
    ladder = values_of_sides(facts, _PAIRS, block, block.cells[-1].side, figures.primary)
    if not len(ladder.baseline) or not len(ladder.other):
        raise GpuAgentError(f"the first or last rung has no run with the metric {figures.primary.name}")
    shift = estimate_shift(*ladder)
    logs = [test.judgement.shift for test in figures.tests]
    total = sum(log(each.estimate) for each in logs) if all(each.scale is Scale.RATIO for each in logs) else 0.0
    first, last = request.values
    original = None
    with suppress(GpuAgentError):  # without runs that are no rungs
        found = compare_sides(ask, replace(request, metric=figures.primary.name, experiment=None))
        first, last = (cell.side for cell in found.layout.blocks[0].cells if cell.runs)
        original = values_of_sides(found.facts, _PAIRS, found.layout.blocks[0], last, found.figures.primary)
    return Division(
        sides=(first, last),
        experiment=experiment,
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
        original=estimate_shift(*original) if original else None,
        rest=unexplained(original, ladder) if original else None,
        outside=(*named[1 : places[0] + 1], *named[places[-1] + 1 :]),
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


def _lay_out(ask: Ask, request: Request, experiment: str) -> tuple[Layout, Layout, Sequence[str]]:
    """Return a layout with a block for each rung and the one before it, one with the first and last, and all rungs.

    Rungs without a run that succeeded are in no layout.
    """
    # The condition chooses the original runs.
    runs = find_runs(ask, _FACET, workload=request.workload, experiment=experiment)
    on_rungs = [run for run in runs if run.side]
    workload = on_rungs[0].workload if on_rungs else ""
    succeeded: dict[str, list[Run]] = {}
    for run in on_rungs:
        if run.side and run.workload == workload:
            succeeded.setdefault(run.side, []).extend([run] if run.status == "succeeded" else [])
    every = sorted(succeeded, key=_number)
    cells = [Cell(side=name, runs=tuple(succeeded[name]), others={}) for name in every if succeeded[name]]
    if len(cells) < 2:
        raise GpuAgentError(f"{experiment} has fewer than two rungs with runs that succeeded; see: collector runs")

    def layout(pairs: Sequence[tuple[Cell, Cell]]) -> Layout:
        blocks = tuple(Block(workload=workload, parameters={}, held={}, cells=pair) for pair in pairs)
        sides = tuple(dict.fromkeys(cell.side for pair in pairs for cell in pair))
        return Layout(facet=_FACET, sides=sides, blocks=blocks, left_out=())

    return layout(list(pairwise(cells))), layout([(cells[0], cells[-1])]), every


def _number(rung: str) -> tuple[int, str]:
    first = rung.partition(" ")[0]
    return int(first) if first.isdecimal() else 0, rung


def answer_divided(ask: Ask, request: Request) -> Answer | None:
    """Return the ratio divided among the rungs of the request's experiment; None: it has no rungs."""
    experiment = request.experiment
    runs = find_runs(ask, _FACET, workload=None, experiment=experiment) if experiment else []
    if experiment is None or all(run.side is None for run in runs):
        return None
    return render_division(divide_ratio(ask, request, experiment))


def render_division(division: Division) -> Answer:
    """Return the answer of a divided ratio; CSV has a line for each fact, the ladder, the original and the rest."""
    foot, top = division.sides
    rows: list[dict[str, Any]] = []
    for part in division.parts:
        judgement, pairs = part.test.judgement, part.test.pairs
        row = {"part": part.fact, "pairs": pairs, "share": part.share, "verdict": judgement.verdict}
        rows.append({**row, "shown": str(pairs or "unpaired"), "shift": judgement.shift})
    wholes = {"all rungs": division.ladder, "original runs": division.original, "unexplained rest": division.rest}
    rows += [{"part": name, "shown": "", "shift": shift} for name, shift in wholes.items() if shift]
    scale = notation([1.0], division.metric.unit)
    title = f"ratio of {spoken(division.metric, None)}"
    columns = (
        Column("part", "fact", left=True),
        Column("pairs"),
        Column(None, "pairs", "shown"),
        Column(None, title, "shift", show=partial(write_shift, scale=scale)),
        Column("share", "share", show=lambda share: f"{round(100 * share)} %"),
        Column("verdict"),
        Column(None, "verdict", lambda row: row["verdict"].value if "verdict" in row else ""),
        *(Column(name, value=f"shift.{name}") for name in ("estimate", "low", "high", "alpha")),
    )
    parts = Table(columns, rows)
    return Answer(
        heading=f"Why {division.workload} differs between {foot} and {top}",
        text=_answer(division),
        parts=[parts],
        facts={
            "sides": division.sides,
            "workload": division.workload,
            "metric": division.metric.name,
            "delta": division.delta,
            "parts": parts,
        },
        csv=[parts],
        next=_next(division),
    )


def _next(division: Division) -> str:
    """Return the command that makes more repeats while a fact is open, and else the one that compares the rungs."""
    tests = [part.test for part in division.parts]
    if any(test.judgement.verdict in (Verdict.NOT_SHOWN, Verdict.TOO_FEW) for test in tests):
        made = max(figure.runs for test in tests for figure in (test.baseline, test.other))
        repeats = _MORE * made
        # Runs with other numbers of repeats are another experiment.
        name = f"{_NUMBERED.sub('', division.experiment)}-{repeats}"
        return harmless(shlex.join([*_RUN, "--repeats", str(repeats), "--name", name]))
    return write_command("compare", {"--by": f"label:{LABEL}", "--experiment": division.experiment})


def _answer(division: Division) -> str:
    foot, top = division.sides
    shown = [part for part in division.parts if part.test.judgement.verdict.name == "DIFFERS"]
    facts = ", ".join(f"{part.fact} ({ratio(part.test.judgement.shift.estimate)})" for part in shown)
    said = f"From {foot} to {top}, these facts change {spoken(division.metric, None)}: {facts}." if shown else ""
    hidden = could_hide([part.test.judgement.shift for part in division.parts])
    said = said or f"No fact is shown to change {spoken(division.metric, None)} from {foot} to {top}{hidden}."
    if division.rest is None:
        rest = "Without other runs of both sides that have a ratio, the unexplained rest is not known."
    elif division.rest.low is None:
        rest = "The runs are too few for an interval of the unexplained rest."
    elif division.rest.is_shown:
        rest = f"The ladder leaves a ratio of {ratio(division.rest.estimate)} unexplained ({interval(division.rest)})."
    else:
        rest = f"No unexplained rest is shown ({interval(division.rest)})."
    if division.outside:
        rest += f" No run of these rungs succeeded, so the rest has their effect: {', '.join(division.outside)}."
    return (
        f"{said} {rest} Each fact counts as it adds to those before it; verdicts of all facts hold together "
        "(Holm), and shares are of the logarithm."
    )
