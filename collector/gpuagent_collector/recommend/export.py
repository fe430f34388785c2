"""A recommendation in words, as a document of paragraphs and tables, and in every format."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from gpuagent_collector.compare import comparison
from gpuagent_collector.compare import export as comparing
from gpuagent_collector.compare.comparison import compare
from gpuagent_collector.errors import OneSideError
from gpuagent_collector.metrics.bounds import CPU_PERCENT, TIME_PERCENT, UNIT_PERCENT, Bound, Limit
from gpuagent_collector.present.answer import Answer, Section, read_warnings
from gpuagent_collector.present.human import notation, ratio, significant
from gpuagent_collector.present.table import Column, Table
from gpuagent_collector.present.values import ABSENT
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.recommend.ranking import Ranking, Standing
from gpuagent_collector.recommend.study import Reasons, Recommendation, Request, recommend
from gpuagent_collector.runs.cells import describe, tell_apart
from gpuagent_collector.runs.words import interval, write_shift
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
        sentences += [_choice(ranking, recommendation), *_behind(ranking), *_break_even(ranking, recommendation)]
        sentences += why(reasons, preposition)
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
    least = _LEAST[next(iter(weights))] if len(weights) == 1 else f"does best by {_join_words(named, 'and')}"
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
    sides = _join_words([standing.side for standing in tied], "or")
    settle = f" Repeats on {ranking.unsettled} would help a new experiment most." if ranking.unsettled else ""
    return f"{block}: nothing shows whether it {least} {preposition} {sides}{reason}.{settle}"


def _behind(ranking: Ranking) -> Iterator[str]:
    behind = [standing for standing in ranking.standings if not standing.is_tied]
    listed = [f"{standing.side} {_times(standing)}" for standing in behind[:_SPOKEN_SIDES]]
    more = [f"{len(behind) - len(listed)} more after them"] if len(behind) > len(listed) else []
    if listed:
        yield f"Against {ranking.standings[0].side}: {_join_words([*listed, *more], 'and')}."


def _break_even(ranking: Ranking, recommendation: Recommendation) -> Iterator[str]:
    """Yield the share of its price at which the second side would cost as much as the best, where only cost counts."""
    behind = [standing for standing in ranking.standings if not standing.is_tied and standing.judgement]
    if list(recommendation.request.weights) != ["cost"] or not behind or not behind[0].judgement:
        return
    shift = behind[0].judgement.shift
    if shift.scale is Scale.RATIO and shift.low and shift.high:
        ends = f"{significant(100 / shift.high)} to {significant(100 / shift.low)} %"
        yield f"{behind[0].side} would cost as much at {significant(100 / shift.estimate)} % of its price ({ends})."


def _times(standing: Standing) -> str:
    if standing.judgement is None or standing.judgement.shift.scale is not Scale.RATIO:
        return "more"
    shift = standing.judgement.shift
    return f"{ratio(shift.estimate)} times as much ({interval(shift)}, {standing.runs} runs)"


def why(reasons: Sequence[Reasons], preposition: str) -> list[str]:
    """Return the bounds of a workload on each side, and the sides where none is shown: a sentence each."""
    shown = [
        f"{preposition.capitalize()} {one.side} it is bound by {_join_words([*map(_bound, one.shown)], 'and')}."
        for one in reasons
        if one.shown
    ]
    silent = [one.side for one in reasons if not one.shown]
    return [*shown, *([f"What bounds it {preposition} {_join_words(silent, 'or')} is not shown."] if silent else [])]


def _bound(bound: Bound) -> str:
    percent = "" if bound.percent is None else f"{significant(bound.percent)} %; "
    return f"{LIMITS[bound.limit]} ({bound.sign}: {percent}shown from {significant(bound.threshold_percent, 2)} %)"


def _join_words(texts: Sequence[str], word: str) -> str:
    return " ".join([*([", ".join(texts[:-1]), word] if len(texts) > 1 else []), texts[-1]])


# Marks the sides in the Pareto set, and the bounds that are shown.
_MARK = "●"


def answer_recommend(ask: Ask, **asked: Any) -> Answer:
    """Answer the command; `asked` are the fields of a request. One side alone is described by its values."""
    try:
        return render(recommend(ask, Request(**asked)))
    except OneSideError:
        described = {name: asked[name] for name in ("by", "workload", "experiment", "where", "prices")}
        return comparing.render(compare(ask, comparison.Request(**described, series=False)))


def render(recommendation: Recommendation) -> Answer:
    """Return the answer; CSV has a line for each side of each block."""
    layout = recommendation.layout
    return Answer(
        heading=f"Where to run {recommendation.request.workload}, by {layout.facet.name}",
        text=answer(recommendation),
        sections=[_section(*pair, recommendation) for pair in recommendation.reasoned],
        caveats=recommendation.caveats,
        facts={
            "workload": recommendation.request.workload,
            "by": layout.facet.name,
            "weights": recommendation.request.weights,
            "delta": recommendation.request.delta,
            "rankings": [_facts(*pair) for pair in recommendation.reasoned],
        },
        csv=[_data(*pair, layout.facet.name) for pair in recommendation.reasoned],
        sides=layout.sides,
    )


def _verdict(standing: Standing) -> str:
    return standing.judgement.verdict.value if standing.judgement else "best"


_SCORE = (
    Column("verdict", value=_verdict),
    Column("score", value="judgement.shift.estimate"),
    Column("score_low", value="judgement.shift.low"),
    Column("score_high", value="judgement.shift.high"),
    Column("level", value="judgement.shift.alpha"),
    Column("chances"),
    Column("in_pareto_set", value="is_efficient"),
)
_NUMBER = Column("n", value="runs")


def _facts(ranking: Ranking, reasons: Sequence[Reasons]) -> dict[str, Any]:
    return {
        "parameters": ranking.block.parameters,
        "held": ranking.block.held,
        "criteria": {one.name: {"what": one.what, "per": one.per, "unit": one.unit} for one in ranking.criteria},
        "sides": Table((Column("side"), _NUMBER, Column("place"), Column("medians"), *_SCORE), ranking.standings),
        "unranked": ranking.unranked,
        "unsettled": ranking.unsettled,
        "runs": {cell.side: [run.run_id for run in cell.runs] for cell in ranking.block.cells},
        "bounds": {one.side: one.bounds for one in reasons},
    }


def _data(ranking: Ranking, reasons: Sequence[Reasons], by: str) -> Table:
    block, bounds = ranking.block, {one.side: one.bounds for one in reasons}
    units = {one.name: one.unit for one in ranking.criteria}

    def percent(at: int, standing: Standing) -> float | None:
        return bounds[standing.side][at].percent

    columns = [
        Column("side"),
        _NUMBER,
        Column("place"),
        *(Column(name, value=f"medians.{name}") for name in ("time", "energy", "cost")),
        Column("cost_unit", value=lambda _standing: units.get("cost")),
        *_SCORE,
    ]
    for at, bound in enumerate(reasons[0].bounds):
        columns.append(Column(f"{bound.limit.value}_percent", value=partial(percent, at)))
    columns.append(Column("bound_by", value=lambda standing: _shown_limits(bounds[standing.side])))
    about = {"workload": block.workload, "parameters": block.parameters, "held": block.held, "by": by}
    return Table(columns, ranking.standings, about=about)


def _shown_limits(bounds: Sequence[Bound]) -> str:
    return " ".join(bound.limit.value for bound in bounds if bound.is_shown)


def _section(ranking: Ranking, reasons: Sequence[Reasons], recommendation: Recommendation) -> Section:
    return Section(
        tell_apart(ranking.block, recommendation.layout.blocks),
        [
            f"Ran as {describe(ranking.block)}",
            _standings(ranking),
            _legend(ranking, recommendation),
            bounds_table(reasons),
            bounds_legend(),
        ],
    )


def _standings(ranking: Ranking) -> Table:
    columns = [
        Column(None, "", lambda one: f"{one.place}{f' {_MARK}' if one.is_efficient else ''}", left=True),
        Column(None, "side", lambda one: f"{one.side} (n {one.runs})", left=True),
    ]
    columns += [Column(None, one.name, f"medians.{one.name}", unit=one.unit) for one in ranking.criteria]
    columns += [
        Column(None, "score [interval]", _score),
        Column(None, "P(best)", lambda one: _chance(one.chances.get("score"))),
        Column(None, "verdict", _verdict),
    ]
    return Table(columns, ranking.standings)


def _score(standing: Standing) -> str:
    return write_shift(standing.judgement.shift, notation([1], "")) if standing.judgement else "1"


def _chance(share: float | None) -> str:
    """Return a share of draws; none or all of them is no certainty."""
    if share is None:
        return ABSENT
    return "< 1 %" if share < 0.01 else "> 99 %" if share > 0.99 else f"{100 * share:.0f} %"


def _legend(ranking: Ranking, recommendation: Recommendation) -> str:
    weights = recommendation.request.weights
    weighed = next(iter(weights))
    if len(weights) > 1:
        weighed = f"geometric mean of {', '.join(f'{name} (weight {significant(w)})' for name, w in weights.items())}"
    titles = ", ".join(f"{one.what} of {one.per}" for one in ranking.criteria)
    sentences = [
        f"Medians over runs: {titles}. Score: {weighed}, against the best side's. Verdicts as in "
        "`collector compare`, but all pairs are tested together; sides that are not shown to differ from the best "
        "share its place."
    ]
    if any(standing.chances for standing in ranking.standings):
        sentences.append(
            "P(best): share of bootstrap samples of nodes and their runs in which the side is best. It is no test, is "
            "too sure with few runs, and with one node a side says nothing about others."
        )
    if any(standing.is_efficient is not None for standing in ranking.standings):
        sentences.append(
            f"{_MARK}: in the Pareto set: no other side takes as little of everything, and is shown to take less of "
            "something."
        )
    if ranking.unranked:
        sentences.append(f"Not ranked, because some of these figures are missing: {', '.join(ranking.unranked)}.")
    if "cost" not in {one.name for one in ranking.criteria}:
        prices = recommendation.request.prices
        reason = f"{prices.source} has no prices of these nodes in one currency" if prices else "give --prices FILE"
        sentences.append(f"Cost is unknown: {reason}.")
    elif recommendation.request.prices:
        sentences.append(f"Prices: {recommendation.request.prices.described}.")
    return " ".join(sentences)


def bounds_table(reasons: Sequence[Reasons]) -> Table:
    """Return a row for each limit with its figure on each side."""
    columns = [
        Column(None, "bound by", lambda row: LIMITS[row[0].limit], left=True),
        Column(None, "shown from", lambda row: f"{significant(row[0].threshold_percent, 2)} %"),
    ]
    columns += [Column(None, one.side, str(at), show=_share) for at, one in enumerate(reasons)]
    return Table(columns, [list(row) for row in zip(*(one.bounds for one in reasons), strict=True)])


def _share(bound: Bound) -> str | None:
    if bound.percent is None:
        return None
    return f"{f'{_MARK} ' if bound.is_shown else ''}{significant(bound.percent)} %"


def bounds_legend() -> str:
    """Return the meaning of the figures, and the thresholds from which they show a bound."""
    third, cpu, unit = (significant(each, 2) for each in (TIME_PERCENT, CPU_PERCENT, UNIT_PERCENT))
    return (
        f"{_MARK}: shown; {ABSENT}: not measured. Of a step's time ({third} %): launches, in which the GPU had no work "
        "and the host did not wait for data; data, in which it waited and the GPU had no work; communication that "
        f"nothing hides. Of a unit ({unit} %): computing, the busiest pipes or FLOPs of the peak; device memory, its "
        f"bandwidth in use. The host's CPU ({cpu} %): the run's own use, of what it may use; if it uses a GPU, only "
        f"if that has no work for {third} %."
    )
