"""The recommended place of a workload, and the reasons, in words."""

from collections.abc import Iterator, Sequence

from gpuagent_collector.metrics.bounds import Bound, Limit
from gpuagent_collector.output.document import read_warnings
from gpuagent_collector.output.human import notation, ratio, significant
from gpuagent_collector.recommend.ranking import Ranking, Standing
from gpuagent_collector.recommend.reasons import Reasons
from gpuagent_collector.recommend.study import Recommendation
from gpuagent_collector.runs.cells import tell_apart
from gpuagent_collector.runs.words import interval
from gpuagent_collector.statistics.shift import Scale
from gpuagent_collector.statistics.verdicts import Verdict

# The tables have the others.
_SPOKEN_RANKINGS = 3
_SPOKEN_SIDES = 3

# Limit → its name.
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
    """Return the recommendation, its evidence, and what bounds the workload."""
    preposition = recommendation.layout.facet.preposition
    pairs = recommendation.reasoned
    sentences: list[str] = []
    for ranking, reasons in pairs[:_SPOKEN_RANKINGS]:
        sentences += [_choice(ranking, recommendation), *_behind(ranking), *why(reasons, preposition)]
    if len(pairs) > _SPOKEN_RANKINGS:
        sentences.append(f"The tables have {len(pairs) - _SPOKEN_RANKINGS} more.")
    return " ".join([*sentences, *read_warnings(len(recommendation.caveats))])


def _choice(ranking: Ranking, recommendation: Recommendation) -> str:
    """Return the side on which it should run, or the sides between which the runs do not decide."""
    block, preposition = (
        tell_apart(ranking.block, recommendation.layout.blocks),
        recommendation.layout.facet.preposition,
    )
    tied = [standing for standing in ranking.standings if standing.is_tied]
    weights = recommendation.request.weights
    named = [f"{name} (weight {significant(weight)})" for name, weight in weights.items()]
    least = _LEAST[next(iter(weights))] if len(weights) == 1 else f"does best by {_listed(named, 'and')}"
    if len(tied) == 1:
        best = tied[0]
        taken = [
            f"{notation([best.medians[one.name]], one.unit).write(best.medians[one.name])} {one.per}"
            for one in ranking.criteria
            if one.name in weights
        ]
        evidence = f"{', '.join(taken)}, median of {best.runs} runs"
        return f"{block}: run it {preposition} {best.side}, where it {least} ({evidence})."
    verdicts = {standing.judgement.verdict for standing in tied if standing.judgement}
    reason = ": they are the same" if verdicts == {Verdict.EQUAL} else ""
    reason = ": the runs are too few to decide" if Verdict.TOO_FEW in verdicts else reason
    sides = _listed([standing.side for standing in tied], "or")
    return f"{block}: nothing shows whether it {least} {preposition} {sides}{reason}."


def _behind(ranking: Ranking) -> Iterator[str]:
    behind = [standing for standing in ranking.standings if not standing.is_tied]
    listed = [f"{standing.side} {_times(standing)}" for standing in behind[:_SPOKEN_SIDES]]
    more = [f"{len(behind) - len(listed)} more after them"] if len(behind) > len(listed) else []
    if listed:
        yield f"Against {ranking.standings[0].side}: {_listed([*listed, *more], 'and')}."


def _times(standing: Standing) -> str:
    if standing.judgement is None or standing.judgement.shift.scale is not Scale.RATIO:
        return "more"
    shift = standing.judgement.shift
    return f"{ratio(shift.estimate)} times as much ({interval(shift)}, {standing.runs} runs)"


def why(reasons: Sequence[Reasons], preposition: str) -> list[str]:
    """Return the bounds of a workload on each side, and the sides where none is shown: a sentence each."""
    shown = [
        f"{preposition.capitalize()} {one.side} it is bound by {_listed([*map(_bound, one.shown)], 'and')}."
        for one in reasons
        if one.shown
    ]
    silent = [one.side for one in reasons if not one.shown]
    return [*shown, *([f"What bounds it {preposition} {_listed(silent, 'or')} is not shown."] if silent else [])]


def _bound(bound: Bound) -> str:
    percent = "" if bound.percent is None else f"{significant(bound.percent)} %; "
    return f"{LIMITS[bound.limit]} ({bound.sign}: {percent}shown from {significant(bound.threshold_percent, 2)} %)"


def _listed(texts: Sequence[str], word: str) -> str:
    return " ".join([*([", ".join(texts[:-1]), word] if len(texts) > 1 else []), texts[-1]])
