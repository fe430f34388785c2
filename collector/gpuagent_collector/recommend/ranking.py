"""The ranking of sides by time, cost and energy."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from math import exp, log, nan
from statistics import median

import numpy as np
from numpy.typing import NDArray

from gpuagent_collector.compare.figures import Contest, Test, is_work_unlike, judge_contests, name_work
from gpuagent_collector.metrics import BY_NAME, Better, Metric
from gpuagent_collector.prices.price import COST_PER_MILLION_ITEMS, COST_PER_RUN, currencies_of
from gpuagent_collector.runs.arguments import find_argument
from gpuagent_collector.runs.cells import Block
from gpuagent_collector.runs.data import Facts, Run
from gpuagent_collector.runs.facets import Facet
from gpuagent_collector.statistics.verdicts import Judgement, Verdict

Floats = NDArray[np.float64]

# A run's figures, by metric.
Metrics = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Criterion:
    """One criterion; less is better.

    Attributes:
        name: as in `--weigh`.
        what: its name in words.
        per: the amount of work that it is of.
        unit: a unit of metrics.
        metric: of its energy or cost; None: it is a time.
        source: the metric that it is computed from, by whose inverse where it `is_inverse`.
    """

    name: str
    what: str
    per: str
    unit: str
    metric: Metric | None
    source: str
    is_inverse: bool = False

    def of(self, metrics: Metrics) -> float | None:
        """Return its value from a run's figures, above 0; None: unknown, or 0, which has no ratio."""
        value = metrics.get(self.source)
        return (1 / value if self.is_inverse else value) if value else None


def find_criteria(block: Block, facts: Facts) -> tuple[Criterion, ...]:
    """Return the criteria of a block: per item or step where two of its sides have a throughput, else per run."""
    by_item = sum(any(facts.values(cell.runs, "throughput")) for cell in block.cells) >= 2
    by_item = by_item and not is_work_unlike(block, facts)
    work = name_work(block.runs, facts)
    per, energy = (work, "gpu_energy_per_item_joules") if by_item else ("run", "gpu_energy_run_joules")
    # Of an item by its throughput.
    time = "throughput" if by_item else "run_seconds"
    found = [
        Criterion("time", "time", per, "seconds", None, time, is_inverse=by_item),
        Criterion("energy", "GPUs' energy", per, "joules", BY_NAME[energy], energy),
    ]
    currencies = currencies_of(facts.derived)
    # Without prices nothing has a cost, and costs in two currencies cannot be compared.
    if len(currencies) == 1:
        kind, per = (COST_PER_MILLION_ITEMS, f"million {work}s") if by_item else (COST_PER_RUN, "run")
        metric = kind.metric(currencies.pop())
        found.append(Criterion("cost", "cost", per, metric.unit, metric, metric.name))
    return tuple(found)


# Name of a criterion → its weight, above 0.
Weights = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The place of one side.

    Attributes:
        run_ids: of the runs that have every weighed criterion; of a side that is not ranked, of all its runs.
        place: 1 for the best and all that are not shown to differ from it, which come first; then consecutive. None: it
            lacks a weighed criterion.
        medians: over runs, by the name of each criterion that the side has.
        judgement: its score against that of the ranking's reference; None: it is the reference, or has no score.
        is_tied: whether nothing shows that another side is better.
        worse_by: the options of which it has a value that is shown to be worse, over all values of the others.
        is_efficient: whether it belongs to the Pareto set: no other side takes less or as much of everything, and is
            shown to take less of something. None: all sides have fewer than two criteria in common, or too few runs
            for any test.
    """

    side: str
    run_ids: frozenset[str]
    place: int | None
    medians: Mapping[str, float]
    judgement: Judgement | None
    is_tied: bool
    worse_by: tuple[str, ...] = ()
    is_efficient: bool | None = None

    @property
    def runs(self) -> int:
        """The number of its runs."""
        return len(self.run_ids)

    @property
    def is_behind(self) -> bool:
        """Return whether it is itself shown to be worse than the reference."""
        return _is_behind(self.judgement)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The sides of one block, the best first.

    Attributes:
        criteria: those for which some side has a figure.
        reference: the side that the scores are against.
        unranked: sides with runs that lack a weighed criterion.
        judged: by the name of each criterion that all sides have, the verdict on each two of them.
    """

    block: Block
    criteria: tuple[Criterion, ...]
    standings: tuple[Standing, ...]
    reference: str
    unranked: tuple[Standing, ...]
    judged: Mapping[str, "Judged"]


# Side → run_id → value; every side has some.
Values = Mapping[str, Mapping[str, float]]


Pair = tuple[str, str]
# (better, other) → the verdict on the other against it.
Judged = Mapping[Pair, Judgement]


def rank(
    blocks: Iterable[Block], facts: Facts, weights: Weights, *, delta: float, alpha: float = 0.05
) -> tuple[Ranking, ...]:
    """Return the ranking of each block in which two sides have every weighed criterion.

    Args:
        blocks: groups of like runs.
        facts: the facts about their runs, costs included.
        weights: the criteria that count, and their weights.
        delta: the share that counts as equal.
        alpha: the error rate of each family of tests, over all rankings.
    """
    scored = []
    for block in blocks:
        weighed = [criterion for criterion in find_criteria(block, facts) if criterion.name in weights]
        scores = _values(block, facts, partial(_score, weighed, weights))
        if len(scores) > 1:
            scored.append((block, dict(sorted(scores.items(), key=lambda item: median(item[1].values())))))
    judged = _judge(scored, delta, alpha)
    return tuple(_ranking(*each, facts, delta, alpha) for each in zip(scored, judged, strict=True))


def _score(criteria: Sequence[Criterion], weights: Weights, metrics: Metrics) -> float | None:
    """Return the weighted geometric mean of a run's criteria; None: it lacks one."""
    logs = [weights[criterion.name] * log(value) for criterion in criteria if (value := criterion.of(metrics))]
    return exp(sum(logs) / sum(weights.values())) if len(logs) == len(weights) else None


def _values(block: Block, facts: Facts, of: Callable[[Metrics], float | None]) -> Values:
    known: dict[str, dict[str, float]] = {}
    for cell in block.cells:
        for run in cell.runs:
            value = of(facts.metrics.get(run.run_id, {}))
            if value is not None:
                known.setdefault(cell.side, {})[run.run_id] = value
    return known


def _judge(families: Sequence[tuple[Block, Values]], delta: float, alpha: float) -> Sequence[Judged]:
    """Return the verdicts over all pairs of sides of each, the one with the lower median first.

    Those with the baseline of `compare` are its tests; of the other sides every two are a family of their own.
    """
    figures: dict[int, dict[str, float]] = defaultdict(dict)
    for block, values in families:
        for of_side in values.values():
            figures[id(block)].update(of_side)

    def figures_of(block: Block, runs: Sequence[Run]) -> Floats:
        known = figures[id(block)]
        return np.array([known.get(run.run_id, nan) for run in runs], dtype=np.float64)

    with_baseline: list[tuple[int, Contest]] = []
    of_others: list[tuple[int, Contest]] = []
    for number, (block, values) in enumerate(families):
        baseline = _find_baseline(block, values)
        for pair in combinations(sorted(values, key=lambda side: median(values[side].values())), 2):
            (with_baseline if baseline in pair else of_others).append((number, Contest(block, *pair)))
    judged: list[dict[Pair, Judgement]] = [{} for _ in families]
    for family in (with_baseline, of_others):
        tested = judge_contests([contest for _, contest in family], figures_of, delta=delta, alpha=alpha)
        for (number, contest), (_, judgement) in zip(family, tested, strict=True):
            judged[number][contest.baseline, contest.side] = judgement
    return judged


def _find_baseline(block: Block, values: Values) -> str:
    """Return the side against which `compare` tests the others: the first that has values."""
    return next(cell.side for cell in block.cells if cell.side in values)


def _find_pareto_set(taken: Mapping[str, Values], judged: Mapping[str, Judged], sides: Collection[str]) -> set[str]:
    """Return the sides that no other one beats in some criterion, and equals or beats in all."""
    differing = {pair for each in judged.values() for pair, one in each.items() if one.verdict is Verdict.DIFFERS}
    medians = {side: [median(taken[name][side].values()) for name in judged] for side in sides}

    def dominates(one: str, other: str) -> bool:
        is_nowhere_worse = all(own <= theirs for own, theirs in zip(medians[one], medians[other], strict=True))
        return is_nowhere_worse and (one, other) in differing

    return {side for side in sides if not any(dominates(other, side) for other in sides)}


def _ranking(scored: tuple[Block, Values], judged: Judged, facts: Facts, delta: float, alpha: float) -> Ranking:
    block, scores = scored
    taken, by_criterion = {}, {}
    criteria = find_criteria(block, facts)
    for criterion in criteria:
        values = _values(block, facts, criterion.of)
        taken[criterion.name] = values
        if values.keys() >= scores.keys():
            of_scored = {side: values[side] for side in scores}
            # Each criterion separately: with few repeats all of them together could show nothing.
            (by_criterion[criterion.name],) = _judge([(block, of_scored)], delta, alpha)
    verdicts = {one.verdict for each in by_criterion.values() for one in each.values()}
    has_set = len(by_criterion) > 1 and verdicts != {Verdict.TOO_FEW}
    efficient = _find_pareto_set(taken, by_criterion, scores) if has_set else None
    baseline = _find_baseline(block, scores)
    reference = _find_reference(scores, judged, baseline)
    judgements = {side: _against(reference, side, judged) for side in scores}
    # What is worse than the baseline is not best either, whatever else is shown.
    worse = {side for side in scores if _is_behind(_against(baseline, side, judged))}
    medians = {
        cell.side: {name: median(values[cell.side].values()) for name, values in taken.items() if cell.side in values}
        for cell in block.cells
    }
    standings = [
        Standing(
            side=side,
            run_ids=frozenset(scores[side]),
            place=1,
            medians=medians[side],
            judgement=judgement,
            is_tied=side not in worse and not _is_behind(judgement),
            is_efficient=None if efficient is None else side in efficient,
        )
        for side, judgement in judgements.items()
    ]
    return Ranking(
        judged=by_criterion,
        block=block,
        criteria=tuple(one for one in criteria if taken[one.name]),
        standings=_place(standings),
        reference=reference,
        unranked=tuple(
            Standing(
                side=cell.side,
                run_ids=frozenset(run.run_id for run in cell.runs),
                place=None,
                medians=medians[cell.side],
                judgement=None,
                is_tied=False,
            )
            for cell in block.cells
            if cell.runs and cell.side not in scores
        ),
    )


def _find_reference(scores: Values, judged: Judged, baseline: str) -> str:
    """Return the side that the scores are of: the baseline, or the best of those that are shown to be better.

    While none is, another side of lower median is no better choice, and its tests would be of a chosen extreme.
    """
    best, *others = scores
    if len(others) == 1:
        return best
    better = (side for side in scores if _is_behind(judged.get((side, baseline))))
    return next(better, baseline)


def _against(reference: str, side: str, judged: Judged) -> Judgement | None:
    """Return the verdict on a side against the reference; None: it is the reference."""
    if side == reference:
        return None
    if (reference, side) in judged:
        return judged[reference, side]
    judgement = judged[side, reference]
    shift = judgement.shift
    ends = [None if end is None else 1 / end for end in (shift.high, shift.low)]
    return replace(judgement, shift=replace(shift, estimate=1 / shift.estimate, low=ends[0], high=ends[1]))


def _place(standings: Iterable[Standing]) -> tuple[Standing, ...]:
    """Return the standings with their places, those that share the first one before the others."""
    ordered = sorted(standings, key=lambda standing: not standing.is_tied)
    return tuple(
        replace(standing, place=1 if standing.is_tied else 1 + number) for number, standing in enumerate(ordered)
    )


def _is_behind(judgement: Judgement | None) -> bool:
    return judgement is not None and judgement.verdict is Verdict.DIFFERS and judgement.shift.estimate > 1


# The tests of each option of a sweep alone, over all values of the others.
Options = Sequence[tuple[Facet, Sequence[Test]]]


def place_by_options(ranking: Ranking, options: Options, criterion: str, better: Better) -> Ranking:
    """Return the ranking, behind the best also the sides with a value of an option that is shown to be worse.

    A side stays where it is if no setting that has the better value, and agrees in all other options, is better.

    Args:
        ranking: of a sweep.
        options: their tests.
        criterion: the only one that is weighed.
        better: which values of the tested metric are better.
    """
    arguments = [facet.argument or "" for facet, _ in options]
    commands = {side.side: ranking.block.cell(side.side).runs[0].command for side in ranking.standings}
    settings = {side: [find_argument(command, name) for name in arguments] for side, command in commands.items()}
    medians = {standing.side: standing.medians[criterion] for standing in ranking.standings}
    placed = []
    for standing in ranking.standings:
        own, worse = settings[standing.side], []
        for at, (facet, tests) in enumerate(options):
            beaten = {one for one, other in shown_better(tests, better) if other == own[at]}
            siblings = (side for side, other in settings.items() if other == [*own[:at], other[at], *own[at + 1 :]])
            if any(settings[side][at] in beaten and medians[side] < medians[standing.side] for side in siblings):
                worse.append(facet.option)
        placed.append(replace(standing, is_tied=standing.is_tied and not worse, worse_by=tuple(worse)))
    return replace(ranking, standings=_place(sorted(placed, key=lambda standing: medians[standing.side])))


def shown_better(tests: Iterable[Test], better: Better) -> list[Pair]:
    """Return the better and the worse value of each test of an option that shows a difference."""
    found = []
    for test in tests:
        shift = test.judgement.shift
        if test.judgement.verdict is Verdict.DIFFERS:
            is_better = (shift.estimate > shift.neutral) is (better is Better.HIGHER)
            found.append(test.sides if is_better else test.sides[::-1])
    return found
