"""Where a workload should run, and why, in words."""

from collections.abc import Sequence

from gpuagent_collector.compare.answer import interval
from gpuagent_collector.metrics.bounds import Bound, Limit
from gpuagent_collector.output.human import notation, ratio, significant
from gpuagent_collector.recommend.ranking import Ranking, Standing
from gpuagent_collector.recommend.reasons import Reasons
from gpuagent_collector.recommend.study import Recommendation
from gpuagent_collector.runs.cells import tell_apart
from gpuagent_collector.statistics.shift import Scale, Verdict

# More than these are left to the tables.
_SPOKEN_RANKINGS = 3
_SPOKEN_SIDES = 3

# What each limit is called.
LIMITS = {
    Limit.LAUNCH: "launches",
    Limit.DATA: "data",
    Limit.HOST: "the host's CPU",
    Limit.COMPUTE: "computing",
    Limit.MEMORY: "device memory",
    Limit.COMMUNICATION: "communication",
}

_LEAST = {"time": "takes the least time", "energy": "takes the least energy of its GPUs", "cost": "costs the least"}


def answer(recommendation: Recommendation) -> str:
    """Return what is recommended, on what that rests, and what bounds the workload."""
    sentences: list[str] = []
    preposition = recommendation.layout.facet.preposition
    pairs = list(zip(recommendation.rankings, recommendation.reasons, strict=True))
    for ranking, reasons in pairs[:_SPOKEN_RANKINGS]:
        sentences += [_choice(ranking, recommendation), *_behind(ranking), *why(reasons, preposition)]
    if len(pairs) > _SPOKEN_RANKINGS:
        sentences.append(f"The tables have {len(pairs) - _SPOKEN_RANKINGS} more.")
    number = len(recommendation.caveats)
    if number:
        sentences.append(f"Read the {'warning' if number == 1 else f'{number} warnings'} below before acting on it.")
    return " ".join(sentences)


def _choice(ranking: Ranking, recommendation: Recommendation) -> str:
    """Return on which side it should run, or between which the runs do not choose."""
    block = tell_apart(ranking.block, recommendation.layout.blocks)
    tied = [standing for standing in ranking.standings if standing.is_tied]
    least = _least(recommendation)
    if len(tied) == 1:
        best = f"{recommendation.layout.facet.preposition} {tied[0].side}"
        return f"{block}: run it {best}, where it {least} ({_taken(tied[0], ranking, recommendation)})."
    sides = _joined([standing.side for standing in tied], "or")
    return (
        f"{block}: nothing shows whether it {least} {recommendation.layout.facet.preposition} {sides}{_why_tied(tied)}."
    )


def _least(recommendation: Recommendation) -> str:
    weights = recommendation.request.weights
    if len(weights) == 1:
        return _LEAST[next(iter(weights))]
    return (
        f"does best by {_joined([f'{name} (weight {significant(weight)})' for name, weight in weights.items()], 'and')}"
    )


def _taken(standing: Standing, ranking: Ranking, recommendation: Recommendation) -> str:
    weighed = [one for one in ranking.criteria if one.name in recommendation.request.weights]
    texts = [
        f"{notation([standing.medians[one.name]], one.unit).write(standing.medians[one.name])} {one.per}"
        for one in weighed
    ]
    return f"{', '.join(texts)}, median of {standing.runs} runs"


def _why_tied(tied: Sequence[Standing]) -> str:
    verdicts = {standing.judgement.verdict for standing in tied if standing.judgement}
    if Verdict.TOO_FEW in verdicts:
        return ": the runs are too few to tell"
    return ": they are the same" if verdicts == {Verdict.EQUAL} else ""


def _behind(ranking: Ranking) -> list[str]:
    behind = [standing for standing in ranking.standings if not standing.is_tied]
    told = [f"{standing.side} {_times(standing)}" for standing in behind[:_SPOKEN_SIDES]]
    more = [f"{len(behind) - len(told)} more after them"] if len(behind) > len(told) else []
    best = ranking.standings[0].side
    return [f"Against {best}: {_joined([*told, *more], 'and')}."] if told else []


def _times(standing: Standing) -> str:
    if standing.judgement is None or standing.judgement.shift.scale is not Scale.RATIO:
        return "more"
    shift = standing.judgement.shift
    return f"{ratio(shift.estimate)} times as much ({interval(shift)}, {standing.runs} runs)"


def why(reasons: Sequence[Reasons], preposition: str) -> list[str]:
    """Return what bounds a workload on each side, and on which sides that is not shown: a sentence each."""
    shown = [
        f"{preposition.capitalize()} {one.side} it is bound by {_joined([*map(_bound, one.shown)], 'and')}."
        for one in reasons
        if one.shown
    ]
    silent = [one.side for one in reasons if not one.shown]
    return [*shown, *([f"What bounds it {preposition} {_joined(silent, 'or')} is not shown."] if silent else [])]


def _bound(bound: Bound) -> str:
    percent = "" if bound.percent is None else f"{significant(bound.percent)} %; "
    return f"{LIMITS[bound.limit]} ({bound.sign}: {percent}shown from {significant(bound.threshold_percent, 2)} %)"


def _joined(texts: Sequence[str], word: str) -> str:
    return " ".join([*([", ".join(texts[:-1]), word] if len(texts) > 1 else []), texts[-1]])
