"""A recommendation in words, as a document of paragraphs and tables, and in every format."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from gpuagent_collector.compare import comparison
from gpuagent_collector.compare import document as comparing
from gpuagent_collector.compare.answer import (
    are_together,
    say_behind,
    say_dependences,
    say_options,
    say_together,
    say_uncounted,
    say_why,
)
from gpuagent_collector.compare.because import say
from gpuagent_collector.compare.choosing import say_choice
from gpuagent_collector.compare.comparison import compare, find_best
from gpuagent_collector.compare.parts import because_table, with_bars
from gpuagent_collector.compare.tables import OF_RATIOS, is_far_from_medians, verdict_legend, verdict_table
from gpuagent_collector.compare.values import ALONE
from gpuagent_collector.errors import OneSideError
from gpuagent_collector.metrics import Better
from gpuagent_collector.present.answer import Answer, Caveat, Legend, Part, Section, add_sentence, join_sentences
from gpuagent_collector.present.human import in_unit, notation, per, ratio, significant
from gpuagent_collector.present.table import MOST_ROWS, Column, Table
from gpuagent_collector.present.terminal import table_width
from gpuagent_collector.prices.runs import why_unpriced
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.recommend.bottlenecks import Reasons, bounds_legend, bounds_table, find_reasons, why
from gpuagent_collector.recommend.ranking import Criterion, Ranking, Standing, shown_better
from gpuagent_collector.recommend.study import Recommendation, Request, recommend
from gpuagent_collector.runs.arguments import find_argument
from gpuagent_collector.runs.cells import Layout, describe, first_few, tell_apart
from gpuagent_collector.runs.facets import Facet, find_facet
from gpuagent_collector.runs.find import find_workload
from gpuagent_collector.runs.words import could_hide, interval, join_words, percent, write_command, write_shift
from gpuagent_collector.statistics.shift import Scale
from gpuagent_collector.statistics.verdicts import Verdict
from gpuagent_common.text import counted

# Marks the sides in the Pareto set.
_MARK = "●"

# The tables have the others.
_SPOKEN_RANKINGS = 3
_SPOKEN_SIDES = 3


class _Verbs(NamedTuple):
    """The words of a criterion: for the best side, for the others beside it, and for what is cheaper in it."""

    least: str
    more: str
    less: str


_VERBS = {
    "time": _Verbs("is fastest", "takes {} as long", "faster"),
    "energy": _Verbs("takes the least energy of its GPUs", "takes {} as much", "more economical"),
    "cost": _Verbs("costs least", "costs {} as much", "cheaper"),
}
_SEVERAL = _Verbs("does best", "takes {} as much of these together", "better")


def answer(recommendation: Recommendation, *, most: int = _SPOKEN_RANKINGS) -> str:
    """Return the recommendation, its evidence, and where the difference comes from; the tables have more."""
    layout = recommendation.layout
    sentences = _say_unpriced(recommendation)
    if _is_of_all_settings(recommendation):
        return join_sentences([*sentences, *_over_settings(recommendation)])
    by_setting = _say_settings(recommendation)
    sentences += by_setting
    for (ranking, reasons), because in zip(recommendation.reasoned[:most], recommendation.because, strict=False):
        first, *others = _choice(ranking, recommendation)
        if ranking is recommendation.rankings[0]:
            sentences += [first, *others, *_say_unranked(recommendation), *_say_left_out(recommendation)]
        else:
            sentences += [f"\n{first}", *others]
        if because:
            said = say(because, layout, recommendation.tests.specs)
            sentences += [f"\n{said}"] if said else []
        # One reason is enough for the first screen, and an unknown one is none.
        is_known = any(one.shown or one.idle_percent is not None for one in reasons)
        if most > 1 or (is_known and not because):
            sentences += why(reasons, layout, brief=most == 1)
    more = len(recommendation.rankings) - most
    if more > 0 and not by_setting:
        sentences.append(f"{counted(more, 'more setting')} can be seen with --all.")
    return join_sentences(sentences)


def _say_unpriced(recommendation: Recommendation) -> list[str]:
    """Return why prices that were given do not count; nothing where they do, or nobody asked for cost."""
    request, reason = recommendation.request, why_unpriced(recommendation.facts)
    is_asked = request.prices and request.weights is None and "cost" not in recommendation.weights
    return [f"Cost is not compared: {reason}."] if is_asked and reason else []


def _find_unsaid(recommendation: Recommendation) -> list[Caveat]:
    """Return the warnings without that of a price whose absence the answer says, with its only reason."""
    request, reasons = recommendation.request, set(recommendation.facts.unpriced.values())
    is_said = len(reasons) == 1 and (request.weights is None or "cost" in request.weights)
    return [caveat for caveat in recommendation.caveats if caveat.code != "unpriced" or not is_said]


def _find_unranked(recommendation: Recommendation) -> list[Standing]:
    """Return each side that lacks a weighed figure wherever it has runs of a ranking."""
    ranked = {one.side for ranking in recommendation.rankings for one in ranking.standings}
    found = {one.side: one for ranking in recommendation.rankings for one in ranking.unranked}
    return [one for side, one in found.items() if side not in ranked]


def _say_unranked(recommendation: Recommendation) -> list[str]:
    """Return which sides are not ranked, and why; nothing where all are."""
    unranked, facet = _find_unranked(recommendation), recommendation.layout.facet
    if not unranked:
        return []
    weighed = (one for one in recommendation.rankings[0].criteria if one.name in recommendation.weights)
    lacking = [each for each in weighed if any(each.name not in one.medians for one in unranked)]
    reasons = {recommendation.facts.unpriced.get(run_id) for one in unranked for run_id in one.run_ids}
    why_not = reasons.pop() if len(reasons) == 1 and [each.name for each in lacking] == ["cost"] else None
    are, their = ("are", "their") if unranked[1:] else ("is", "its")
    unknown = f"{their} {join_words([f'{each.name} per {each.per}' for each in lacking])} is unknown"
    named = f"{len(unranked)} {facet.plural}"
    if len(unranked) <= _SPOKEN_SIDES:
        named = join_words([facet.name_side(one.side) for one in unranked])
    return [f"{named} {are} not ranked: {why_not or unknown}."]


def _say_left_out(recommendation: Recommendation) -> list[str]:
    """Return which runs are in no ranking for want of a price, as those of a platform; nothing where none are."""
    ranked = [ranking.block for ranking in recommendation.rankings]
    blocks = [block for block in recommendation.layout.blocks if block not in ranked]
    unpriced = recommendation.facts.unpriced if "cost" in recommendation.weights else {}
    reasons = {unpriced.get(run.run_id) for block in blocks for run in block.runs}
    if None in reasons or len(reasons) != 1:
        return []
    names = first_few([tell_apart(block, recommendation.layout.blocks, briefly=True) for block in blocks])
    runs = counted(sum(len(block.runs) for block in blocks), "run")
    return [f"{names} ({runs}) {'are' if blocks[1:] else 'is'} not ranked: {reasons.pop()}."]


def _say_settings(recommendation: Recommendation) -> list[str]:
    """Return in one sentence the best side of each setting; nothing where they have the same one, or none has one."""
    layout = recommendation.layout
    by_side: dict[str, list[str]] = defaultdict(list)
    for ranking in recommendation.rankings:
        name = tell_apart(ranking.block, layout.blocks, briefly=True)
        is_decided = sum(standing.is_tied for standing in ranking.standings) == 1
        by_side[layout.facet.where(ranking.standings[0].side) if is_decided else "undecided"].append(name)
    if len(by_side.keys() - {"undecided"}) < 2:
        return []
    verbs = _VERBS[next(iter(recommendation.weights))] if len(recommendation.weights) == 1 else _SEVERAL
    listed = "; ".join(f"{side}: {first_few(names)}" for side, names in by_side.items())
    return [f"The setting decides where {recommendation.request.workload} {verbs.least} ({listed})."]


def _is_of_all_settings(recommendation: Recommendation) -> bool:
    """Return whether all settings together show more than one of them, as `compare` says then."""
    overall = recommendation.tests.figures.overall
    is_one = len(recommendation.weights) == 1 and len(recommendation.rankings) > 1
    return is_one and bool(overall) and all(map(attrgetter("common"), overall)) and are_together(recommendation.tests)


def _over_settings(recommendation: Recommendation) -> Iterator[str]:
    """Yield the side that is shown to be best over all settings, where one is, the tests of `compare`, and why."""
    tests, layout = recommendation.tests, recommendation.layout
    overall = tests.figures.overall
    compared = {overall[0].baseline, *(one.side for one in overall)}
    unranked = {one.side for one in _find_unranked(recommendation)}
    others = [side for side in layout.sides if side not in {*compared, *unranked}]
    # A side that some settings lack may be best in another.
    by_setting = _say_settings(recommendation) if others else []
    yield from by_setting
    if best := None if by_setting else _best_over_settings(recommendation, has_others=bool(others)):
        tied = [one for one in overall if not one.is_shown]
        verbs = _VERBS[next(iter(recommendation.weights))]
        lead = f"{recommendation.request.workload} {verbs.least} {layout.facet.where(best)}"
        if tied:
            named = first_few([layout.facet.name_side(one.side) for one in tied])
            named = f"{layout.facet.preposition} {' and '.join(named.rsplit(', ', 1))}".lstrip()
            lead += f", and without a measurable difference to it {named}"
            lead += could_hide([one.common for one in tied if one.common])
        yield f"{lead}."
        yield from [say_behind(tests)] if overall[1:] else say_together(tests)
    else:
        yield from say_together(tests)
    if others:
        yield _say_alone(others, layout)
    yield from [*_say_unranked(recommendation), *_say_left_out(recommendation)]
    yield from (f"\n{because}" for because in say_why(tests, most=1))


def _say_alone(sides: Sequence[str], layout: Layout) -> str:
    """Return which settings the sides have that some settings lack."""
    alone = set()
    for side in sides:
        blocks = [block for block in layout.blocks for cell in block.cells if cell.side == side and cell.runs]
        alone.add(first_few([tell_apart(block, layout.blocks, briefly=True) for block in blocks]))
    named = f"{len(sides)} other {layout.facet.plural} have" if sides[1:] else f"{layout.facet.name_side(sides[0])} has"
    return f"{named} runs of {alone.pop() if len(alone) == 1 else 'some settings'} alone."


def _best_over_settings(recommendation: Recommendation, *, has_others: bool) -> str | None:
    """Return the side that is shown to be best over all settings, and behind no other in any; None: there is none."""
    tests = recommendation.tests
    overall, is_higher = tests.figures.overall, tests.figures.primary.better is Better.HIGHER
    best = find_best(tests)
    # Of two sides, the test has the best one.
    if len(overall) == 1 and (shift := overall[0].common) and overall[0].is_shown:
        best = overall[0].side if (shift.estimate > 1) is is_higher else overall[0].baseline
    standings = [one for ranking in recommendation.rankings for one in ranking.standings if one.side == best]
    is_first = not has_others or all(one.is_tied for one in standings)
    return best if is_first and (len(overall) == 1 or best == overall[0].baseline) else None


def _by_options(ranking: Ranking, block: str, verbs: "_Verbs", recommendation: Recommendation) -> str:
    """Return the best values of the options that matter, and what `compare` says of each."""
    tests, better = recommendation.tests, recommendation.tests.figures.primary.better
    lowest = ranking.block.cell(ranking.standings[0].side).runs[0].command
    named, is_lowest = [], True
    for facet, of_option in recommendation.options:
        beaten = {worse for _, worse in shown_better(of_option, better or Better.LOWER)}
        values = [of_option[0].baseline.side, *(test.other.side for test in of_option)]
        if beaten:
            named.append(facet.name_side(" or ".join(value for value in values if value not in beaten)))
            is_lowest = is_lowest and find_argument(lowest, facet.argument or "") not in beaten
    lead = f"{block} {verbs.least} with {join_words(named)}" if is_lowest else block
    but = "" if is_lowest else f", but {ranking.standings[0].side} has the lowest median"
    return f"{lead}: by option, {say_options(tests)}{but}."


def _choice(ranking: Ranking, recommendation: Recommendation) -> Iterator[str]:
    """Yield the side on which it should run, or between which sides the runs do not decide, and what it costs there."""
    block = tell_apart(ranking.block, recommendation.layout.blocks)
    weights, facet = recommendation.weights, recommendation.layout.facet
    verbs = _VERBS[next(iter(weights))] if len(weights) == 1 else _SEVERAL
    tied = [standing for standing in ranking.standings if standing.is_tied]
    behind = [standing for standing in ranking.standings if not standing.is_tied]
    if uncounted := say_uncounted(recommendation.tests):
        yield from uncounted
    elif recommendation.options:
        yield _by_options(ranking, block, verbs, recommendation)
    elif len(tied) > 1:
        yield _tie(ranking, block, tied, recommendation)
        if behind:
            than = facet.name_side(ranking.reference)
            yield f"Compared with {than}, {_listed(behind, verbs, recommendation.layout)}."
    else:
        by = "" if verbs is not _SEVERAL else f" by {join_words([*map(_weighed, weights.items())])}"
        where = facet.where(tied[0].side)
        weighed = [one for one in ranking.criteria if one.name in weights]
        taken = ", ".join(per(in_unit(one.unit)(tied[0].medians[one.name]), one.per) for one in weighed)
        others = _listed(behind, verbs, recommendation.layout)
        # The names of options are long, and the table has the median too.
        said = "" if recommendation.layout.options[0] else f": {taken} (median of {tied[0].runs} runs)"
        yield f"{block} {verbs.least}{by} {where}{said}; {others}."
        shift = behind[0].judgement.shift if behind[0].judgement else None
        # The price of one side cannot change without the other's: of settings, and on a common node.
        first, second = ({run.nodes for run in ranking.block.cell(each.side).runs} for each in (tied[0], behind[0]))
        is_priced = list(weights) == ["cost"] and not _is_of_settings(facet) and not first & second
        if is_priced and shift and shift.scale is Scale.RATIO and shift.low and shift.high:
            ends = f"{significant(100 / shift.high)} to {significant(100 / shift.low)} %"
            even = f"{significant(100 / shift.estimate)} % of its price ({ends})"
            yield f"{facet.name_side(behind[0].side)} would break even at {even}."
    yield from say_dependences(recommendation.tests)
    for one in ranking.criteria if len(tied) == 1 else ():
        if one.name in ranking.judged and one.name not in (*weights, "energy"):
            # Another side than the second may be the best one in it.
            best, *rest = ranking.standings
            lowest = min(rest, key=lambda standing: standing.medians[one.name])
            yield f"{_compare(ranking, one.name, [best.side, lowest.side], facet)}."


def _name(criterion: Criterion) -> str:
    """Return a criterion in a sentence, with the work that it is of; times are compared whatever they are of."""
    return criterion.name if criterion.name == "time" else f"{criterion.name} per {criterion.per}"


def _is_of_settings(facet: Facet) -> bool:
    """Return whether the sides are settings of the work itself."""
    return all(part.argument is not None or part.option for part in facet.parts)


def _weighed(weight: tuple[str, float]) -> str:
    return f"{weight[0]} (weight {significant(weight[1])})"


def _tie(ranking: Ranking, block: str, tied: Sequence[Standing], recommendation: Recommendation) -> str:
    """Return the cheaper of sides without a measurable difference, and how large a difference could be."""
    weights, facet = recommendation.weights, recommendation.layout.facet
    sides = [standing.side for standing in tied]
    what = join_words([_name(one) for one in ranking.criteria if one.name in weights])
    # Sides of one score may differ in all that it weighs.
    what = f"the score of {what}" if len(weights) > 1 else what
    shifts = [standing.judgement.shift for standing in tied if standing.judgement]
    verdicts = {standing.judgement.verdict for standing in tied if standing.judgement}
    if verdicts == {Verdict.EQUAL}:
        bound = f": they are equal to within {percent(recommendation.request.delta)}"
    else:
        bound = could_hide(shifts) or "; the runs are too few to decide"
    named = join_words([*map(facet.name_side, sides)])
    if len(sides) > _SPOKEN_SIDES:
        named = f"{len(sides)} {facet.plural}"
    if verdicts == {Verdict.TOO_FEW} and len(weights) == 1:
        (one,) = (criterion for criterion in ranking.criteria if criterion.name in weights)
        least = min(standing.medians[one.name] for standing in tied)
        lowest = [facet.where(standing.side) for standing in tied if standing.medians[one.name] == least]
        said = "the same so far" if len(lowest) == len(tied) else f"lowest {first_few(lowest)}"
        median = per(in_unit(one.unit)(least), one.per)
        return f"{block}: the runs are too few to decide between {named}; {what} is {said} ({median})."
    tie = f"no measurable difference in {what} between {named}{bound}"
    cheaper = None
    if "cost" in ranking.judged and "cost" not in weights:
        cheaper = _compare(ranking, "cost", sorted(sides, key=lambda side: _median(ranking, side, "cost"))[:2], facet)
    if cheaper and "no measurable" not in cheaper:
        return f"{block}: {cheaper}, and there is {tie}."
    return f"{block}: {tie}."


def _median(ranking: Ranking, side: str, criterion: str) -> float:
    return next(standing.medians[criterion] for standing in ranking.standings if standing.side == side)


def _compare(ranking: Ranking, criterion: str, sides: Sequence[str], facet: Facet) -> str:
    """Return which of two sides takes less of a criterion that is not weighed, or that nothing shows it."""
    judged, one = ranking.judged[criterion], next(one for one in ranking.criteria if one.name == criterion)
    judgement = judged.get((sides[0], sides[1])) or judged[sides[1], sides[0]]
    if judgement.verdict is not Verdict.DIFFERS:
        between = join_words([*map(facet.name_side, sides)])
        return f"There is no measurable difference in {_name(one)} between {between}"
    first, second = sorted(sides, key=lambda side: _median(ranking, side, criterion))
    figures = [in_unit(one.unit)(_median(ranking, side, criterion)) for side in (first, second)]
    against = figures[1] if len(ranking.standings) == len(sides) else f"{figures[1]} {facet.where(second)}"
    return f"{facet.name_side(first)} is {_VERBS[criterion].less} ({per(figures[0], one.per)} against {against})"


# A smaller factor needs a digit more.
_PLAIN_FACTOR = 1.1


def _listed(behind: Sequence[Standing], verbs: _Verbs, layout: Layout) -> str:
    """Return how much more the sides behind the best take; a side before them has the names of their options."""
    options, values_of = layout.options
    listed: list[str] = []
    # The table has many.
    for one in behind[: 1 if options and len(behind) > _SPOKEN_SIDES else _SPOKEN_SIDES]:
        if one.judgement:
            estimate = one.judgement.shift.estimate
            # Beside its interval with as many digits, or it could seem to be outside.
            is_plain = listed and estimate >= _PLAIN_FACTOR
            more = verbs.more.format(f"{significant(estimate) if is_plain else ratio(estimate)} times")
            evidence = "" if listed else f" ({interval(one.judgement.shift)})"
            named = values_of[one.side] if options else layout.facet.name_side(one.side)
            listed.append(f"{named} {more}{evidence}")
    rest = 0 if options else len(behind) - len(listed)
    return ", ".join([*listed, *([f"{rest} more after them"] if rest else [])])


def answer_recommend(ask: Ask, **asked: Any) -> Answer:
    """Answer the command; `asked` are the fields of a request. One side alone is described by its values."""
    if asked["workload"] is None:
        conditions = {name: asked[name] for name in ("experiment", "where")}
        asked["workload"] = find_workload(ask, find_facet(asked["by"]), **conditions)
    try:
        found = recommend(ask, Request(**asked))
    except OneSideError:
        described = {name: asked[name] for name in ("by", "workload", "experiment", "where", "prices")}
        side = compare(ask, comparison.Request(**described, series=False))
        return describe_side(ask, side)
    if found.request.experiment == asked["experiment"]:
        return render(found)
    return add_sentence(render(found), say_choice(found.tests, replace(found.tests.request, experiment=None)))


def describe_side(ask: Ask, found: comparison.Comparison) -> Answer:
    """Return the values of the only side that there is, and what bounds the workload there."""
    layout = found.layout
    reasons = find_reasons(ask, layout.facet, layout.blocks, found.facts)
    side = layout.facet.where(layout.sides[0])
    bounds: list[Part] = [bounds_table([one for of_block in reasons for one in of_block]), bounds_legend()]
    said = f"All runs are {side}, so there is nothing to choose between."
    described, bottleneck = comparing.render(found), why(reasons[0], layout)
    text = " ".join([described.text.removesuffix(ALONE).rstrip(), said, *bottleneck])
    return replace(described, text=text, short=text, sections=[Section("Bottlenecks", bounds, is_detail=True)])


def render(recommendation: Recommendation) -> Answer:
    """Return the answer; CSV has a line for each side of each block."""
    layout, first = recommendation.layout, recommendation.rankings[0]
    bounds: list[Part] = []
    for ranking, reasons in recommendation.reasoned:
        bounds += [f"{tell_apart(ranking.block, layout.blocks)}:"] if len(layout.blocks) > 1 else []
        bounds.append(bounds_table(reasons))
    causes, sections = [], []
    for ranking, because in zip(recommendation.rankings, recommendation.because, strict=True):
        if because:
            of = f": {tell_apart(ranking.block, layout.blocks)}" if len(layout.blocks) > 1 else ""
            causes.append(because_table(because))
            sections.append(Section(f"Where the difference comes from{of}", causes[-1:], is_detail=True))
    question = "How" if _is_of_settings(layout.facet) else "Where"
    parts: list[Part] = [_standings(first, layout, recommendation.weights)]
    parts += with_bars(recommendation.because[0], layout.facet, _legend(first, recommendation))
    is_of_all = _is_of_all_settings(recommendation)
    if is_of_all:
        parts = [verdict_table(recommendation.tests), verdict_legend(recommendation.tests)]
    return Answer(
        heading=f"{question} to run {recommendation.request.workload}, by {layout.facet.spoken}",
        text=answer(recommendation),
        short=answer(recommendation, most=1),
        parts=parts,
        sections=[
            *(
                Section(
                    tell_apart(ranking.block, layout.blocks),
                    [
                        _standings(ranking, layout, recommendation.weights),
                        *([_legend(first, recommendation)] if ranking is first else []),
                    ],
                    is_detail=True,
                )
                for ranking in recommendation.rankings[0 if is_of_all else 1 :]
            ),
            *sections,
            Section("Bottlenecks", [*bounds, bounds_legend()], is_detail=True),
        ],
        caveats=_find_unsaid(recommendation),
        next=_next(recommendation),
        more="what bounds each side",
        facts={
            "workload": recommendation.request.workload,
            "by": layout.facet.name,
            "weights": recommendation.weights,
            "delta": recommendation.request.delta,
            "rankings": [_facts(*pair) for pair in recommendation.reasoned],
            "because": [{**(table.about or {}), "parts": table} for table in causes],
        },
        csv=[_data(*pair, recommendation) for pair in recommendation.reasoned],
        beside_csv=_say_unpriced(recommendation),
        sides=layout.sides,
    )


def _next(recommendation: Recommendation) -> str | None:
    """Return the command that shows the difference between the first two sides, or how many repeats would."""
    request, (first, second, *_) = recommendation.request, recommendation.rankings[0].standings
    by = None if request.by == "platform" else request.by
    prices = request.prices.source if request.prices else None
    asked = {"--workload": request.workload, "--experiment": request.experiment, "--where": request.where, "--by": by}
    if _is_of_all_settings(recommendation):
        tests = recommendation.tests
        sides = (tests.figures.overall[0].baseline, tests.figures.overall[0].side)
        if best := find_best(tests):
            # The next best of those that are shown to differ, as the best one does.
            shown = {one.side: one.common.estimate for one in tests.figures.overall if one.common and one.is_shown}
            shown[tests.figures.overall[0].baseline] = 1.0
            del shown[best]
            next_best = max if tests.figures.primary.better is Better.HIGHER else min
            sides = (next_best(shown, key=shown.__getitem__), best)
        elif len(tests.layout.sides) == len(sides) or not tests.figures.differs:
            return comparing.find_next(tests)
        return write_command("compare", {**asked, "--prices": prices}, sides=sides)
    if recommendation.options and second.is_tied:
        # The single commands that `compare` leaves open may be decided by their options.
        return write_command("plan", {"--experiment": request.experiment, "--where": request.where}, request.workload)
    if second.is_tied:
        return comparing.plan_more(recommendation.tests)
    return write_command("compare", {**asked, "--prices": prices}, sides=(first.side, second.side))


def _verdict(standing: Standing, ranking: Ranking) -> str | None:
    """Return the verdict on a side; of the reference, whether it is best, or else alone has the lowest median."""
    if standing.place is None:
        return None
    if standing.judgement:
        return standing.judgement.verdict.value
    if sum(one.is_tied for one in ranking.standings) == 1:
        return "best" if standing.place == 1 else "baseline"
    # Ratios of single runs may order sides otherwise than their medians.
    scores = [one.judgement.shift.estimate for one in ranking.standings if one.judgement]
    return "lowest" if standing is ranking.standings[0] and all(score > 1 for score in scores) else "baseline"


_SCORE = (
    Column("score", value="judgement.shift.estimate"),
    Column("score_low", value="judgement.shift.low"),
    Column("score_high", value="judgement.shift.high"),
    Column("level", value="judgement.shift.alpha"),
    Column("in_pareto_set", value="is_efficient"),
    Column("worse_by"),
)
_NUMBER = Column("n", value="runs")


def _score(ranking: Ranking) -> tuple[Column, ...]:
    return Column("verdict", value=lambda standing: _verdict(standing, ranking)), *_SCORE


def _facts(ranking: Ranking, reasons: Sequence[Reasons]) -> dict[str, Any]:
    return {
        "parameters": ranking.block.parameters,
        "held": ranking.block.held,
        "criteria": {one.name: {"what": one.what, "per": one.per, "unit": one.unit} for one in ranking.criteria},
        "sides": Table(
            (Column("side"), _NUMBER, Column("place"), Column("medians"), *_score(ranking)), ranking.standings
        ),
        "unranked": [one.side for one in ranking.unranked],
        "runs": {cell.side: [run.run_id for run in cell.runs] for cell in ranking.block.cells},
        "bounds": {one.side: one.bounds for one in reasons},
    }


def _data(ranking: Ranking, reasons: Sequence[Reasons], recommendation: Recommendation) -> Table:
    block, bounds = ranking.block, {one.side: one.bounds for one in reasons}
    rows = [*ranking.standings, *ranking.unranked]
    criteria = {one.name: one for one in ranking.criteria}
    energy, cost, weights = criteria.get("energy"), criteria.get("cost"), recommendation.weights
    # As --weigh takes them.
    weighed = ",".join([f"{name}={weight:g}" for name, weight in weights.items()] if len(weights) > 1 else weights)

    def percent(at: int, standing: Standing) -> float | None:
        return bounds[standing.side][at].percent if standing.side in bounds else None

    def shown_limits(standing: Standing) -> str:
        return " ".join(bound.limit.value for bound in bounds.get(standing.side, ()) if bound.is_shown)

    columns = [
        Column("side"),
        _NUMBER,
        Column("place"),
        Column("time", value="medians.time"),
        Column("time_unit", value=lambda _standing: criteria["time"].unit),
        Column("energy", value="medians.energy"),
        Column("energy_unit", value=lambda _standing: energy and energy.unit),
        # Of time and energy.
        Column("per", value=lambda _standing: criteria["time"].per),
        Column("cost", value="medians.cost"),
        Column("cost_unit", value=lambda _standing: cost and cost.unit),
        Column("cost_per", value=lambda _standing: cost and cost.per),
        Column("criteria", value=lambda _standing: weighed),
        *_score(ranking),
    ]
    for at, bound in enumerate(reasons[0].bounds):
        columns.append(Column(f"{bound.limit.value}_percent", value=partial(percent, at)))
    columns.append(Column("bound_by", value=shown_limits))
    about = {"workload": block.workload, "parameters": block.parameters, "held": block.held}
    about["by"] = recommendation.layout.facet.name
    return Table(columns, rows, about=about)


# Columns of a usual terminal.
_USUAL_WIDTH = 80


def _standings(ranking: Ranking, layout: Layout, weights: Mapping[str, float]) -> Table:
    tied = sum(standing.is_tied for standing in ranking.standings)
    # Named once for all sides.
    options, values_of = layout.options
    options = options or layout.facet.option
    names = {one.side: one.side if options else layout.facet.name_side(one.side) for one in ranking.standings}
    names |= values_of

    def verdict(one: Standing) -> str | None:
        if one.worse_by and not one.is_behind:
            return "worse"
        return _verdict(one, ranking)

    def place(one: Standing) -> str:
        shared = f"1–{tied}" if one.is_tied and tied > 1 else str(one.place)
        return f"{shared}{f' {_MARK}' if one.is_efficient else ''}"

    def score(one: Standing) -> str:
        return write_shift(one.judgement.shift, notation([1], "")) if one.judgement else "1"

    columns = [
        Column(None, "", place, left=True),
        Column(None, options or "side", lambda one: names[one.side], left=True),
        Column(None, "runs", "runs"),
    ]
    for one in ranking.criteria:
        values = [standing.medians[one.name] for standing in ranking.standings if one.name in standing.medians]
        scale = notation(values, one.unit)
        if one.name == "cost" and scale.divisor != 1.0:  # of a thousand, which is said once
            columns.append(Column(None, f"{one.name}, {scale.symbol}", f"medians.{one.name}", scale.write_bare))
        else:
            of = f"/{one.per}" if one.name == "time" and one.per != "run" else ""
            columns.append(Column(None, f"{one.name}{of}", f"medians.{one.name}", unit=one.unit))
    columns += [
        Column(None, "score [interval]", score),
        Column(None, "verdict", verdict),
    ]
    table = Table(columns, ranking.standings, most=MOST_ROWS, can_shrink=True)
    grid = table.grid()
    width = table_width([max(map(len, column)) for column in zip(grid.header, *grid.rows, strict=True)])
    if width > _USUAL_WIDTH and "cost" in ranking.judged and "energy" not in weights:
        # There is no room for it too.
        columns = [replace(one, wide=True) if one.title == "energy" else one for one in columns]
    return replace(table, columns=columns)


def _legend(ranking: Ranking, recommendation: Recommendation) -> Legend:
    weights, prices = recommendation.weights, recommendation.request.prices
    weighed = next(iter(weights))
    score = next(_name(one) for one in ranking.criteria if one.name == weighed)
    if len(weights) > 1:
        score = f"geometric mean of {', '.join(map(_weighed, weights.items()))}"
    titles = ", ".join(f"{one.what} per {one.per}" for one in ranking.criteria)
    reference = next(one for one in ranking.standings if one.side == ranking.reference)
    is_best = reference is ranking.standings[0] and sum(one.is_tied for one in ranking.standings) < 2
    against = "the best side" if is_best else recommendation.layout.facet.name_side(reference.side)
    line = f"Score: {score} ÷ {against}'s."
    if any(one.worse_by and not one.is_behind for one in ranking.standings):
        line += " Worse: by the value of one of its options."
    for standing in ranking.standings if len(weights) == 1 else ():
        medians = standing.medians[weighed], reference.medians[weighed]
        if standing.judgement and is_far_from_medians(standing.judgement.shift, *medians):
            line += f" {OF_RATIOS}"
            break
    sentences = [
        f"Ran as {describe(ranking.block)}. Medians over runs: {titles}. {line} Verdicts are those of `collector "
        "compare`; where another side is better than its baseline, this is compared with the others. Sides that are "
        "not shown to be worse than another share the first place."
    ]
    if any(standing.is_efficient is not None for standing in ranking.standings):
        line += f" {_MARK}: none is shown better in all."
        sentences.append(
            f"{_MARK}: in the Pareto set: no other side takes as little of everything, and is shown to take less of "
            "something."
        )
    if ranking.unranked:
        named = ", ".join(one.side for one in ranking.unranked)
        sentences.append(f"Not ranked, because some of these figures are missing: {named}.")
    if "cost" not in {one.name for one in ranking.criteria}:
        reason = why_unpriced(recommendation.facts) or "give --prices FILE"
        sentences.append(f"Cost is unknown: {reason}.")
    elif prices:
        sentences.append(f"Prices: {prices.described}.")
    return Legend(line, " ".join(sentences))
