"""The ranking of sides by time, cost and energy, and how certain it is."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import exp, log
from statistics import median

import numpy as np
from numpy.typing import NDArray

from gpuagent_collector.compare.figures import name_work
from gpuagent_collector.metrics import BY_NAME, Metric
from gpuagent_collector.prices.price import COST_PER_MILLION_ITEMS, COST_PER_RUN, currencies_of
from gpuagent_collector.runs.cells import Block, Cell, match_runs
from gpuagent_collector.runs.data import Facts
from gpuagent_collector.statistics.shift import Sides, least_pairs
from gpuagent_collector.statistics.verdicts import Judgement, Verdict, judge

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
    return {side: _draw_runs(runs, chance) for side, runs in sides.items()}


def _draw_runs(runs: Runs, chance: np.random.Generator) -> Floats:
    by_node: dict[str | None, list[float]] = defaultdict(list)
    for node, value in runs:
        by_node[node].append(value)
    nodes = [np.asarray(values) for values in by_node.values()]
    if len(nodes) == 1:
        (values,) = nodes
        medians: Floats = np.median(values[chance.integers(values.size, size=(_DRAWS, values.size))], axis=1)
        return medians
    drawn = []
    for _ in range(_DRAWS):
        chosen = (nodes[number] for number in chance.integers(len(nodes), size=len(nodes)))
        runs_of = [values[chance.integers(values.size, size=values.size)] for values in chosen]
        drawn.append(float(np.median(np.concatenate(runs_of))))
    return np.array(drawn)


def share_best(medians: Mapping[str, Floats]) -> Mapping[str, float]:
    """Return the share of draws in which each side has the lowest median; equal ones share it."""
    every = np.stack(list(medians.values()))
    lowest = every == every.min(axis=0)
    return dict(zip(medians, (lowest / lowest.sum(axis=0)).mean(axis=1).tolist(), strict=True))


def least_certain(medians: Mapping[str, Floats]) -> str:
    """Return the side whose median scatters most, in proportion to it."""
    return max(medians, key=lambda side: float(np.std(medians[side]) / np.mean(medians[side])))


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
    work = name_work([run for cell in block.cells for run in cell.runs], facts)
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
        run_ids: of the runs that have every weighed criterion.
        place: 1 for the best and all that are not shown to differ from it, which come first; then consecutive.
        medians: over runs, by the name of each criterion that the side has.
        judgement: its score against that of the best; None: it is the best.
        chances: by the name of each criterion that all sides have, and under `score`, the probability that it is best.
        is_efficient: whether it belongs to the Pareto set: no other side takes less or as much of everything, and is
            shown to take less of something. None: all sides have fewer than two criteria in common.
    """

    side: str
    run_ids: frozenset[str]
    place: int
    medians: Mapping[str, float]
    judgement: Judgement | None
    chances: Mapping[str, float]
    is_efficient: bool | None

    @property
    def runs(self) -> int:
        """The number of its runs."""
        return len(self.run_ids)

    @property
    def is_tied(self) -> bool:
        """Return whether nothing shows that another side is better."""
        return not _is_behind(self.judgement)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The sides of one block, the best first.

    Attributes:
        criteria: those for which some side has a figure.
        unranked: sides with runs that lack a weighed criterion.
        unsettled: of several sides that share the first place, the one whose score is least certain.
        judged: by the name of each criterion that all sides have, the verdict on each two of them.
    """

    block: Block
    criteria: tuple[Criterion, ...]
    standings: tuple[Standing, ...]
    unranked: tuple[str, ...]
    unsettled: str | None
    judged: Mapping[str, "Judged"]

    def judgement(self, criterion: str, side: str, other: str) -> Judgement | None:
        """Return the verdict on two sides by a criterion alone, the lower against the higher; None: it is unknown."""
        judged = self.judged.get(criterion, {})
        return judged.get((side, other)) or judged.get((other, side))


# Side → run_id → value; every side has some.
Values = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contest:
    """A block before its sides are judged: their scores and what each took, the best side first."""

    block: Block
    criteria: tuple[Criterion, ...]
    scores: Values
    taken: Mapping[str, Values]

    @property
    def shared(self) -> Mapping[str, Values]:
        """The values of the sides of each criterion that all of them have."""
        has_all = [name for name, values in self.taken.items() if values.keys() >= self.scores.keys()]
        return {name: {side: self.taken[name][side] for side in self.scores} for name in has_all}


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
        alpha: the error rate over all rankings.
    """
    contests = [contest for block in blocks if (contest := _contest(block, facts, weights))]
    by_score = _judge([(contest.block, contest.scores) for contest in contests], delta, alpha)
    rankings = []
    for contest, judged in zip(contests, by_score, strict=True):
        by_criterion = {}
        for name, values in contest.shared.items():
            # Each criterion separately: with few repeats all of them together could show nothing.
            (by_criterion[name],) = _judge([(contest.block, values)], delta, alpha)
        rankings.append(_ranking(contest, judged, by_criterion))
    return tuple(rankings)


def _contest(block: Block, facts: Facts, weights: Weights) -> _Contest | None:
    criteria = find_criteria(block, facts)
    cells = [cell for cell in block.cells if cell.runs]
    weighed = [criterion for criterion in criteria if criterion.name in weights]

    def score(metrics: Metrics) -> float | None:
        logs = [weights[criterion.name] * log(value) for criterion in weighed if (value := criterion.of(metrics))]
        return exp(sum(logs) / sum(weights.values())) if len(logs) == len(weights) else None

    scores = _values(cells, facts, score)
    if len(scores) < 2:
        return None
    taken = {criterion.name: _values(cells, facts, criterion.of) for criterion in criteria}
    return _Contest(
        block=block,
        criteria=tuple(criterion for criterion in criteria if taken[criterion.name]),
        scores=dict(sorted(scores.items(), key=lambda item: median(item[1].values()))),
        taken=taken,
    )


def _values(cells: Sequence[Cell], facts: Facts, of: Callable[[Metrics], float | None]) -> Values:
    known: dict[str, dict[str, float]] = {}
    for cell in cells:
        for run in cell.runs:
            value = of(facts.metrics.get(run.run_id, {}))
            if value is not None:
                known.setdefault(cell.side, {})[run.run_id] = value
    return known


def _judge(families: Sequence[tuple[Block, Values]], delta: float, alpha: float) -> Sequence[Judged]:
    """Return the verdicts over all pairs of sides of each, the one with the lower median first; all tested together."""
    ranked = [sorted(values, key=lambda side: median(values[side].values())) for _, values in families]
    pairs = [(number, pair) for number, sides in enumerate(ranked) for pair in combinations(sides, 2)]
    needed = least_pairs(max(1, len(pairs)), alpha)
    tested = [_match_values(*families[number], pair, needed) for number, pair in pairs]
    verdicts = judge(tested, delta=delta, alpha=alpha)
    judged: list[dict[Pair, Judgement]] = [{} for _ in families]
    for (number, pair), judgement in zip(pairs, verdicts, strict=True):
        judged[number][pair] = judgement
    return judged


def _match_values(block: Block, values: Values, sides: Pair, needed: int) -> Sides:
    """Return the values of two sides: matched where so many pairs as needed have them, as `compare` does."""
    first, second = (values[side] for side in sides)
    matched = [
        (first[one.run_id], second[two.run_id])
        for one, two in match_runs(*map(block.cell, sides))
        if one.run_id in first and two.run_id in second
    ]
    if len(matched) >= needed:
        return Sides([one for one, _ in matched], [two for _, two in matched], matched=True)
    return Sides(list(first.values()), list(second.values()))


def _find_pareto_set(contest: _Contest, judged: Mapping[str, Judged]) -> Mapping[str, bool] | None:
    """Return whether each side is in the Pareto set, by the criteria that all have; None: these are fewer than two."""
    sides = list(contest.scores)
    if len(judged) < 2:
        return None
    differing = {pair for each in judged.values() for pair, one in each.items() if one.verdict is Verdict.DIFFERS}
    medians = {side: [median(contest.taken[name][side].values()) for name in judged] for side in sides}

    def dominates(one: str, other: str) -> bool:
        is_nowhere_worse = all(own <= theirs for own, theirs in zip(medians[one], medians[other], strict=True))
        return is_nowhere_worse and (one, other) in differing

    return {side: not any(dominates(other, side) for other in sides) for side in sides}


def _draw(contest: _Contest) -> Mapping[str, Mapping[str, Floats]]:
    """Return drawn medians of each side: of its score, and of each criterion that all ranked sides have."""
    nodes = {run.run_id: run.nodes for side in contest.scores for run in contest.block.cell(side).runs}
    drawn = {}
    for name, values in {**contest.shared, "score": contest.scores}.items():
        sides = {}
        for side, of_side in values.items():
            sides[side] = [(nodes[run_id], value) for run_id, value in of_side.items()]
        if medians := draw_medians(sides):
            drawn[name] = medians
    return drawn


def _ranking(contest: _Contest, judged: Judged, by_criterion: Mapping[str, Judged]) -> Ranking:
    drawn = _draw(contest)
    efficient = _find_pareto_set(contest, by_criterion)
    best, *others = contest.scores
    chances = {name: share_best(medians) for name, medians in drawn.items()}
    judgements = {best: None, **{side: judged[best, side] for side in others}}
    tied = [side for side, judgement in judgements.items() if not _is_behind(judgement)]
    scores = drawn.get("score", {})
    return Ranking(
        unsettled=least_certain({side: scores[side] for side in tied}) if scores and len(tied) > 1 else None,
        judged=by_criterion,
        block=contest.block,
        criteria=contest.criteria,
        standings=tuple(
            Standing(
                side=side,
                run_ids=frozenset(contest.scores[side]),
                place=1 + number if _is_behind(judgements[side]) else 1,
                medians={
                    name: median(values[side].values()) for name, values in contest.taken.items() if side in values
                },
                judgement=judgements[side],
                chances={name: of_name[side] for name, of_name in chances.items()},
                is_efficient=efficient[side] if efficient else None,
            )
            for number, side in enumerate(sorted(judgements, key=lambda side: _is_behind(judgements[side])))
        ),
        unranked=tuple(cell.side for cell in contest.block.cells if cell.runs and cell.side not in contest.scores),
    )


def _is_behind(judgement: Judgement | None) -> bool:
    return judgement is not None and judgement.verdict is Verdict.DIFFERS and judgement.shift.estimate > 1
