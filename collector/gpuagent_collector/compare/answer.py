"""The answer of a comparison in words: one paragraph."""

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from math import log

from gpuagent_collector.compare.because import Because, say
from gpuagent_collector.compare.caveats.runs import find_differing
from gpuagent_collector.compare.comparison import (
    Comparison,
    cost_row,
    find_best_by_block,
    order_sides,
    rank_sides,
    telling_side,
)
from gpuagent_collector.compare.figures import Overall, Test, is_work_unlike
from gpuagent_collector.compare.needed import Needed
from gpuagent_collector.compare.parts import say_too_short
from gpuagent_collector.compare.tables import is_far_from_medians
from gpuagent_collector.compare.values import describe_sides
from gpuagent_collector.metrics import Better, Metric
from gpuagent_collector.metrics.result import SERVING
from gpuagent_collector.present.answer import in_short, join_sentences
from gpuagent_collector.present.human import change, notation, ratio, significant
from gpuagent_collector.prices.runs import why_unpriced
from gpuagent_collector.runs.cells import Block, Layout, first_few, tell_apart
from gpuagent_collector.runs.facets import Facet
from gpuagent_collector.runs.words import could_hide, interval, join_words, percent, spoken
from gpuagent_collector.statistics.repeats import POWERS
from gpuagent_collector.statistics.shift import Scale, Shift
from gpuagent_collector.statistics.verdicts import Verdict
from gpuagent_common.text import counted

# The table has the others.
_SPOKEN_TESTS = 3
# Below it "97 % lower" hides how much: it is so many times lower.
_SMALL_RATIO = 0.05


def answer(comparison: Comparison, *, most: int = 3, place: str = "in the table") -> str:
    """Return the results of the comparison, and their evidence; more than `most` are in another `place`."""
    if not comparison.layout.is_compared:
        return describe_sides(comparison, most=most, place=place)
    results, costs = (find(comparison, most=most, place=place) for find in (_results, _costs))
    layout, needed = comparison.layout, comparison.needed
    # The repeats that would show the largest difference, where none is shown and a plan has them.
    if needed and not comparison.figures.differs and _is_planned_so(comparison, needed.test.block):
        runs = f"{needed.words} runs a side ({percent(POWERS[0])} power)"
        where = f" for {tell_apart(needed.test.block, layout.blocks, briefly=True)}" if len(layout.blocks) > 1 else ""
        which = f"{where}{_direction(needed, comparison)}"
        results.append(f"To show a difference of {needed.percent:g} %{which}, make {runs}.")
    # Workloads that lack the metric that others are compared by.
    primary, blocks = comparison.figures.primary, comparison.figures.blocks
    lacking = [block.block for block in blocks if not block.find_row(primary).figures]
    if primary.name == "throughput" and 0 < len(lacking) < len(blocks):
        names = first_few(list(dict.fromkeys(block.workload for block in lacking)))
        results.append(f"No throughput is known of {names}; --metric run_seconds compares durations.")
    unpriced = why_unpriced(comparison.facts)
    if unpriced and not costs and primary.group != "Cost":
        results.append(f"Cost is not compared: {unpriced}.")
    first, second = (results, say_why(comparison, most=most)), (costs, say_why(comparison, most=most, of_costs=True))
    # Without a difference in time the cheaper side is the answer.
    if is_cost_first(comparison):
        first, second = second, first
    said = [*first[0], *_on_new_line(first[1])]
    said += _on_new_line(second[0]) if first[1] else second[0]
    if not comparison.reasons and (short := say_too_short(comparison)):
        said.append(f"\nWhere the difference comes from is unknown: {short}.")
    return join_sentences(_named_once([*said, *_on_new_line(second[1])], layout))


def _direction(needed: Needed, comparison: Comparison) -> str:
    """Return the direction of a difference to show where it is a lower figure, or of an odd node; else ''."""
    estimate, layout = needed.test.judgement.shift.estimate, comparison.layout
    odd = f"{needed.test.other.side} is " if layout.facet.name == "node" and len(layout.sides) > 2 else ""
    is_estimate = needed.percent > 100 * comparison.figures.delta  # and not what counts as equal
    how = _by_ratio(estimate, replace(comparison.figures.primary, better=None))
    return f" ({odd}{how})" if is_estimate and (odd or estimate < 1) else ""


def _on_new_line(sentences: Sequence[str]) -> list[str]:
    return [f"\n{sentence}" for sentence in sentences[:1]] + [*sentences[1:]]


def _is_planned_so(comparison: Comparison, block: Block) -> bool:
    """Return whether the next command makes the repeats, or is a plan of just these runs, which has the same number.

    A plan counts the runs of each command.
    """
    if block.workload == SERVING:
        return False
    if comparison.again:
        return True
    runs = block.runs
    every = [run for run in comparison.runs if run.workload == block.workload and run.status == "succeeded"]
    are_all = len(runs) == len(every) and len({run.experiment for run in runs}) == 1
    return are_all and all(len({run.command for run in cell.runs}) == 1 for cell in block.cells)


def _named_once(sentences: Sequence[str], layout: Layout) -> list[str]:
    """Return the sentences without the name of a workload, or the number of them, that was named last."""
    names = {tell_apart(block, layout.blocks, briefly=brief) for block in layout.blocks for brief in (True, False)}
    last, written = "", []
    for sentence in sentences:
        begin = "\n" if sentence.startswith("\n") else ""
        name, _, rest = sentence.removeprefix(begin).partition(": ")
        if name in names or name.startswith("Over "):
            written.append(f"{begin}{rest[0].upper()}{rest[1:]}" if name == last else sentence)
            last = name
        else:
            last = last if name.startswith("Because ") else ""
            written.append(sentence)
    return written


def is_cost_first(comparison: Comparison) -> bool:
    """Return whether the cost decides, because no difference in time is shown, of a sweep between its two best."""
    row = cost_row(comparison.figures.blocks[0])
    is_shown = row is not None and any(shift.is_shown for shift in row.shifts.values())
    if not (comparison.costs.differs if comparison.costs else is_shown):
        return False
    best = comparison.headline
    return not (best.judgement.verdict is Verdict.DIFFERS if best else comparison.figures.differs)


def _costs(comparison: Comparison, *, most: int, place: str) -> list[str]:
    """Return the differences in cost: of several blocks as of any metric, of a sweep the lowest and the highest."""
    facet, blocks = comparison.layout.facet, comparison.figures.blocks
    if comparison.costs:
        return _results(replace(comparison, figures=comparison.costs), most=most, place=place)
    row = cost_row(blocks[0])
    if row is None or not row.shifts or comparison.figures.primary.group == "Cost":
        return []
    block = blocks[0].block
    best = comparison.headline
    side, cost = telling_side(row, block.baseline, best.other.side if best else None), spoken(row.metric, None)
    name = tell_apart(block, comparison.layout.blocks, briefly=True)
    title = f"{name}: the {cost}"
    this, that, shift = facet.where(side), facet.where(block.baseline), row.shifts[side]
    other, baseline = (row.figures[name].median for name in (side, block.baseline))
    write = notation([other, baseline], row.unit).write
    of_ratio = f"ratio {ratio(shift.estimate)}, " if shift.scale is Scale.RATIO else ""
    evidence = f"{write(other)} and {write(baseline)}, {of_ratio}{interval(shift)}"
    are_ends = all(baseline <= row.figures[name].median <= other for name in row.shifts)
    if len(row.shifts) > 1 and are_ends and shift.is_shown:
        return [f"{title} is lowest {that} ({write(baseline)}), and highest {this} ({write(other)})."]
    if shift.is_shown and shift.scale is Scale.RATIO:
        how = _by_ratio(shift.estimate, row.metric)
        return [f"{title} is {how} {this} {_than(how)} {that} ({evidence})."]
    between = f"{facet.name_side(side)} and {facet.name_side(block.baseline)}"
    nothing = "there is no measurable" if shift.low is not None else "the runs are too few to show any"
    return [f"{name}: {nothing} difference in the {cost} between {between} ({evidence})."]


def _results(comparison: Comparison, *, most: int, place: str) -> list[str]:
    tests, overall = comparison.figures.tests, comparison.figures.overall
    if comparison.figures.are_level:
        return [say_level(comparison)]
    if uncounted := say_uncounted(comparison):
        return uncounted
    if best := comparison.headline:
        verdicts = {test.judgement.verdict for _, of_option in comparison.options for test in of_option}
        if best.judgement.verdict is not Verdict.DIFFERS and Verdict.DIFFERS in verdicts:
            # An option has more runs than a single command, and shows what this one cannot.
            workload = tell_apart(best.block, comparison.layout.blocks, briefly=True)
            return [f"{workload}: by option, {say_options(comparison)}.", *say_dependences(comparison)]
        by_option = [f"By option: {_effects(comparison)}."] if comparison.options else []
        return [_best_sentence(comparison, best), *by_option, *say_dependences(comparison)]
    if overall and (len(tests) > _SPOKEN_TESTS or are_together(comparison)):
        sentences = say_together(comparison)
    elif most < len(tests) and len(overall) == 1:
        # The first of them alone could hide that another one differs the other way.
        statement = _one_by_one(comparison, tests)
        sentences = [f"{statement[0].upper()}{statement[1:]}."]
    else:
        shown_first = sorted(tests, key=lambda test: test.judgement.verdict is not Verdict.DIFFERS)
        sentences = [_sentence(comparison, test) for test in shown_first]
    return in_short(sentences, most=most, place=place)


def are_together(comparison: Comparison) -> bool:
    """Return whether all blocks together say more than single ones: they show a difference, or no single one does."""
    differing = comparison.figures.differing
    return all(one.shift and (one.shift.is_shown or one.sides not in differing) for one in comparison.figures.overall)


# Of sides that differ from the baseline in both directions.
_SPOKEN_SIDES = 3


def say_together(comparison: Comparison) -> list[str]:
    """Return what all blocks together show: the best and the worst of several sides, else a sentence for each two.

    Where the best side depends on the block, it is named by block.
    """
    overall, ranked = comparison.figures.overall, rank_sides(comparison)
    if any(one.is_shown for one in ranked):
        return [_ranked_sentence(comparison, ranked)]
    if ranked and are_together(comparison) and all(one.verdict is Verdict.NOT_SHOWN for one in ranked):
        return [_tie_sentence(comparison, overall)]
    by_block = "" if ranked else _say_best_by_block(comparison)
    is_split = bool(by_block) or any(one.is_split for one in overall)
    if 1 < len(overall) <= _SPOKEN_SIDES and is_split and _have_one_baseline(overall):
        return [_split_sentence(comparison, overall, by_block)]
    differing = comparison.figures.differing
    shown_first = sorted(overall, key=lambda one: one.sides not in differing)
    return [*filter(None, [by_block]), *(_overall_sentence(comparison, one) for one in shown_first)]


def _say_best_by_block(comparison: Comparison) -> str:
    """Return in one sentence the best side of each block, of sides with one ratio each; '' where none is shown."""
    ordered, layout = order_sides(comparison), comparison.layout
    found = find_best_by_block(comparison) if any(one.is_shown for one in ordered) else {}
    if not any(found):
        return ""
    undecided = found.pop(None, [])
    named = {layout.facet.where(side): blocks for side, blocks in found.items() if side}
    named |= {"undecided": undecided} if undecided else {}
    listed = [f"{where} for {first_few(_name_blocks(blocks, layout))}" for where, blocks in named.items()]
    best = "highest" if comparison.figures.primary.better is Better.HIGHER else "lowest"
    return f"{_over_ranked(comparison, ordered)} {best} {', '.join(listed)}."


def _have_one_baseline(overall: Sequence[Overall]) -> bool:
    return len({one.baseline for one in overall}) == 1


def _split_sentence(comparison: Comparison, overall: Sequence[Overall], by_block: str) -> str:
    """Return what the tests of several sides against one baseline show one by one, after the best `by_block`."""
    layout, metric = comparison.layout, comparison.figures.primary
    said: list[str] = []
    for one in overall:
        tests = comparison.figures.tests_of(one)
        # The first says which direction is better, as the best does.
        judged = _find_judged(comparison, tests)
        judged = replace(judged, better=None) if said or by_block else judged
        listed = _list_verdicts(comparison, tests, judged)
        if not listed[1:]:  # the same for all blocks
            listed = [listed[0].partition(" for ")[0]]
        said.append(f"{', '.join(listed)} {layout.facet.where(one.side)}")
    baseline = layout.facet.name_side(overall[0].baseline)
    if by_block:
        return f"{by_block} Against {baseline}, it is {'; '.join(said)}."
    compared = f"{spoken(metric, comparison.request.stat)} compared with {baseline}"
    return f"{_over(comparison, overall[0])}: {compared} is {'; '.join(said)}."


def _tie_sentence(comparison: Comparison, overall: Sequence[Overall]) -> str:
    """Return that no side is shown to differ from the baseline over all blocks, and how large a difference could be."""
    facet, title = comparison.layout.facet, spoken(comparison.figures.primary, comparison.request.stat)
    others = [facet.name_side(one.side) for one in overall]
    named = f"any of {len(others)} other {facet.plural}" if others[2:] else " or ".join(others)
    between = f"between {facet.name_side(overall[0].baseline)} and {named}"
    hidden = could_hide([one.shift for one in overall if one.shift])
    return f"{_over(comparison, overall[0])}: there is no measurable difference in {title} {between}{hidden}."


def say_options(comparison: Comparison) -> str:
    """Return what each option of a sweep changes, the metric named once."""
    title = spoken(comparison.figures.primary, comparison.request.stat)
    return _effects(comparison).replace("makes it", f"makes {title}", 1)


def say_dependences(comparison: Comparison) -> list[str]:
    """Return of each two options that depend on each other what one changes beside each value of the other."""
    title = spoken(comparison.figures.primary, comparison.request.stat)
    said: list[str] = []
    for each in comparison.dependences:
        by_value = sorted(each.ratios.items(), key=lambda item: item[1])
        # The highest, then from the lowest on, then what is not shown to change anything.
        shown = [
            f"{change(ratio)} {each.other.where(value)}" for value, ratio in by_value if value not in each.undecided
        ]
        listed = [*shown[-1:], *shown[:-1], *(f"nothing shown {each.other.where(value)}" for value in each.undecided)]
        changes = "" if said else f" changes {title}"
        sides = f"{each.option.where(each.side).removeprefix('with ')} instead of {each.baseline}"
        said.append(f"{sides}{changes} by about {first_few(listed)}")
    return [f"Options depend on each other: {'; '.join(said)}."] if said else []


def _sentence(comparison: Comparison, test: Test) -> str:
    facet, metric = comparison.layout.facet, comparison.figures.primary
    workload = tell_apart(test.block, comparison.layout.blocks, briefly=True)
    this, that = facet.where(test.other.side), facet.where(test.baseline.side)
    title, delta = spoken(metric, comparison.request.stat), percent(comparison.figures.delta)
    between = f"between {facet.name_side(test.other.side)} and {facet.name_side(test.baseline.side)}"
    hidden, how = could_hide([test.judgement.shift]), _how_much(test, _find_judged(comparison, [test]))
    too = _differ_too(test, facet)
    statement = {
        Verdict.DIFFERS: f"{title} is {how} {this} {_than(how)} {that}{too}",
        Verdict.EQUAL: f"{title} is the same {this} as {that}, to within {delta}{too}",
        Verdict.NOT_SHOWN: f"there is no measurable difference in {title} {between}{hidden}",
        Verdict.TOO_FEW: f"the runs are too few to show any difference in {title} {between}",
    }[test.judgement.verdict]
    return f"{workload}: {statement} ({_evidence(test)})."


def _find_judged(comparison: Comparison, tests: Sequence[Test]) -> Metric:
    """Return the metric that is tested; where the tests are of other work on each side, without a better direction."""
    metric = comparison.figures.primary
    is_of_work = comparison.figures.fell_back or metric.name == "throughput"
    is_unlike = is_of_work and any(is_work_unlike(test.block, comparison.facts) for test in tests)
    return replace(metric, better=None) if is_unlike else metric


# Of arguments in a sentence; the warning has the values.
_SPOKEN_ARGUMENTS = 2


def _differ_too(test: Test, facet: Facet) -> str:
    """Return the arguments that are not compared and in which the commands of two sides differ; '' for none."""
    if not facet.is_of_arguments or facet.argument == "":
        return ""
    cells = tuple(test.block.cell(side) for side in (test.baseline.side, test.other.side))
    # Lone words have no name: a program may only be started by another one.
    names = [name for name, _ in find_differing(replace(test.block, cells=cells), facet) if name]
    if not names:
        return ""
    if len(names) > _SPOKEN_ARGUMENTS:
        rest = len(names) - _SPOKEN_ARGUMENTS
        names = [", ".join(names[:_SPOKEN_ARGUMENTS]), counted(rest, "other")]
    return f", but the commands differ in {' and '.join(names)} too"


def _best_sentence(comparison: Comparison, best: Test) -> str:
    """Return which of several sides is best, and by how much; `best` is its test, or that of the next best side."""
    facet, metric, tests = comparison.layout.facet, comparison.figures.primary, comparison.figures.tests
    title, is_higher = spoken(metric, comparison.request.stat), metric.better is Better.HIGHER
    baseline = facet.name_side(best.baseline.side)
    is_baseline = (best.other.median > best.baseline.median) is not is_higher
    figure = best.baseline if is_baseline else best.other
    value = notation([figure.median], best.unit).write(figure.median)
    workload = tell_apart(best.block, comparison.layout.blocks, briefly=True)
    ended = [facet.name_side(cell.side) for cell in best.block.cells if cell.has_failed]
    failed = f" ({first_few(ended)} failed)" if ended else ""
    few = [test for test in tests if test.judgement.verdict is Verdict.TOO_FEW]
    if 0 < len(few) < len(tests):
        # What is said is of the others.
        tests = tuple(test for test in tests if test not in few)
        failed += " with enough runs"
    among = f"{workload}: of {len(tests) + 1 + len(ended)} {facet.plural}{failed}, {title} is"
    first = f"{among} {'highest' if is_higher else 'lowest'} {facet.where(figure.side)}"
    behind = [test for test in tests if test.judgement.verdict is Verdict.DIFFERS]
    if is_baseline:
        if not behind:
            return f"{first} ({value}); no other is shown to differ."
        shown = "all others are"
        if len(behind) < len(tests):
            shown = f"{len(behind)} of the {len(tests)} others {'is' if len(behind) == 1 else 'are'}"
        nearest = min(behind, key=lambda test: abs(test.other.median - test.baseline.median))
        by = f"{_how_much(nearest, replace(metric, better=None))} {facet.where(nearest.other.side)}"
        evidence = f"{interval(nearest.judgement.shift)}, {_number(nearest)}"
        return f"{first} ({value}); {shown} shown to be {'lower' if is_higher else 'higher'}, {by} ({evidence})."
    if behind and best not in behind:
        worst = max(behind, key=lambda test: abs(test.other.median - test.baseline.median))
        how = _how_much(worst, replace(metric, better=None))
        said = f"{among} {how} {facet.where(worst.other.side)} {_than(how)} {facet.where(worst.baseline.side)}"
        said += f" ({_evidence(worst, with_medians=False)}); "
        if behind[1:]:
            said += f"{len(behind) - 1} more {'differs' if len(behind) == 2 else 'differ'} too; "
        others = [test for test in tests if test not in behind]
        said += "the other one is" if len(others) == 1 else "the others are"
        hidden = could_hide([test.judgement.shift for test in others])
        return f"{said} without a measurable difference to {baseline}{hidden}."
    how = _how_much(best, replace(metric, better=None))
    # The best side before it has its options in full.
    options, values_of = comparison.layout.options
    that = f"with {values_of[best.baseline.side]}" if options else facet.where(best.baseline.side)
    than = {
        Verdict.DIFFERS: f"{how} {_than(how)} {that}",
        Verdict.EQUAL: f"the same as {that} to within {percent(comparison.figures.delta)}",
        Verdict.NOT_SHOWN: f"without a measurable difference to {baseline}{could_hide([best.judgement.shift])}",
        Verdict.TOO_FEW: f"but the runs are too few to show a difference to {baseline}",
    }[best.judgement.verdict]
    worse = [test for test in behind if (test.other.median < test.baseline.median) is is_higher]
    and_worst = ""
    if facet.name == "node" and worse:
        # An odd node is what is looked for.
        worst = max(worse, key=lambda test: abs(test.other.median - test.baseline.median))
        how_worst = f"{_how_much(worst, replace(metric, better=None))} ({interval(worst.judgement.shift)})"
        and_worst = f", and {'lowest' if is_higher else 'highest'} {facet.where(worst.other.side)}, {how_worst}"
    return f"{first}, {than} ({_evidence(best, with_medians=False)}){and_worst}."


def say_uncounted(comparison: Comparison) -> list[str]:
    """Return the range of durations of the only block whose steps have several sizes; nothing without such a range."""
    facet, tests = comparison.layout.facet, comparison.figures.tests
    if not (comparison.is_uncounted and tests) or len(comparison.layout.blocks) > 1:
        return []
    figures = sorted([tests[0].baseline, *(test.other for test in tests)], key=lambda figure: figure.median)
    scale = notation([figure.median for figure in figures], tests[0].unit)
    ends = " to ".join(f"{scale.write(each.median)} {facet.where(each.side)}" for each in (figures[0], figures[-1]))
    title = spoken(comparison.figures.primary, comparison.request.stat)
    said = f"{tests[0].block.workload}: {title} is {ends}, but none is better unless all have the same samples."
    return [said] if figures[0].median < figures[-1].median else []


def say_level(comparison: Comparison, *, is_last: bool = False) -> str:
    """Return the median that all sides of the only block have, of curves by step that of their ends."""
    block, facet, tests = comparison.layout.blocks[0], comparison.layout.facet, comparison.figures.tests
    title = f"{'last ' * is_last}{spoken(comparison.figures.primary, comparison.request.stat)}"
    figures = [tests[0].baseline, *(test.other for test in tests)]
    median = notation([figures[0].median], tests[0].unit).write(figures[0].median)
    number, every = len(figures), len(comparison.layout.sides)
    where = f"{facet.preposition} {'all' if number == every else f'{number} of'} {every} {facet.plural}".lstrip()
    runs = counted(sum(each.runs for each in figures), "run")
    return f"{block.workload}: the median {title} is {median} {where} ({runs})."


def _number(test: Test) -> str:
    return f"{test.pairs:,} pairs" if test.pairs else f"{test.other.runs:,} and {test.baseline.runs:,} runs"


def _effects(comparison: Comparison) -> str:
    """Return what each option of a sweep changes; those of which no runs could show it together."""
    few: list[str] = []
    said: list[str] = []
    given: set[str] = set()
    for facet, tests in comparison.options:
        if all(test.judgement.verdict is Verdict.TOO_FEW for test in tests):
            few.append(facet.option)
        else:
            effect = _effect(facet, tests, comparison.figures.primary, given)
            # The first one has the verb of all.
            is_listed = said and all(" instead of " in each for each in said)
            said.append(effect.replace(" makes it ", ", ", 1) if is_listed else effect)
    if few:
        said.append(f"the runs are too few to show what {' or '.join(few)} changes")
    return "; ".join(said)


def _effect(facet: Facet, tests: Sequence[Test], metric: Metric, given: set[str]) -> str:
    """Return what an option's values change, over all values of the others: the largest difference that is shown.

    `given` has the confidence and the numbers of runs that earlier ones named; they are named once.
    """
    shown = [test for test in tests if test.judgement.verdict is Verdict.DIFFERS]
    if all(test.judgement.verdict is Verdict.EQUAL for test in tests):
        return f"{facet.option} leaves it the same"
    if not shown:
        hidden = could_hide([test.judgement.shift for test in tests]).removeprefix(";")
        return f"{facet.option} makes no measurable difference{hidden and f',{hidden}'}"
    most = max(shown, key=lambda test: abs(log(max(test.other.median, 1e-300) / max(test.baseline.median, 1e-300))))
    changed = f"{facet.name_side(most.other.side)} instead of {most.baseline.side}"
    how = _how_much(most, replace(metric, better=None))
    whole = interval(most.judgement.shift)
    confidence, bounds = whole.split(" interval ")
    of = f"{confidence}, {_number(most)}"
    evidence = bounds if of in given else f"{whole}, {_number(most)}"
    given.add(of)
    return f"{changed} makes it {how} ({evidence})"


# Of several tests, how many have each verdict.
_ALONE = {
    Verdict.DIFFERS: "different",
    Verdict.EQUAL: "the same",
    Verdict.NOT_SHOWN: "undecided",
    Verdict.TOO_FEW: "with too few runs",
}


def _overall_sentence(comparison: Comparison, overall: Overall) -> str:
    """Return a geometric mean with its interval, and the number of each verdict on its tests."""
    tests, mean = comparison.figures.tests_of(overall), overall.mean
    metric = _find_judged(comparison, tests)
    verdicts = Counter(test.judgement.verdict for test in tests)
    counts = "one by one " + ", ".join(f"{number} {_ALONE[verdict]}" for verdict, number in verdicts.items())
    if set(verdicts) == {Verdict.DIFFERS}:
        counts = "each of them differs"
    if overall.common and set(verdicts) == {Verdict.TOO_FEW}:
        counts = "each of them alone has too few runs"
    facet, title = comparison.layout.facet, spoken(metric, comparison.request.stat)
    this, that = facet.where(overall.side), facet.where(overall.baseline)
    between = f"between {facet.name_side(overall.side)} and {facet.name_side(overall.baseline)}"
    shift, runs = overall.common, f"{overall.runs[0]:,} and {overall.runs[1]:,} runs"
    is_shown, evidence = _weigh(overall, verdicts, runs)
    how = _by_ratio(shift.estimate if shift else mean.ratio, metric)
    is_far_apart = is_shown and overall.is_far_apart
    # Of those that are not shown to differ, the direction is unknown.
    is_mixed = Verdict.DIFFERS in verdicts and (not is_shown or (is_far_apart and len(verdicts) > 1))
    if overall.is_split or is_mixed:
        return f"{_over(comparison, overall)}: {_one_by_one(comparison, tests)} (together {evidence})."
    if overall.is_equal:
        statement = f"{title} is the same {this} as {that}, to within {percent(comparison.figures.delta)}"
        counts = "so is each of them"
    elif shift and overall.verdict is Verdict.TOO_FEW:
        statement = f"the runs are too few to show any difference in {title} {between}"
        evidence, counts = f"ratio {ratio(shift.estimate)}", runs
    elif is_far_apart:
        shown = _range(tests, metric) if tests[2:] else _say_both(comparison, tests, metric)
        statement = f"{title} {this} compared with {facet.name_side(overall.baseline)} is {shown}"
    elif is_shown:
        statement = f"{title} is {how} {this} {_than(how)} {that}"
    else:
        statement = f"there is no measurable difference in {title} {between}{could_hide([shift]) if shift else ''}"
    return f"{_over(comparison, overall)}: {statement} ({evidence}; {counts})."


def _weigh(overall: Overall, verdicts: Collection[Verdict], runs: str) -> tuple[bool, str]:
    """Return whether all blocks together are shown to differ, and the evidence: of their test, or of their mean."""
    shift, mean = overall.common, overall.mean
    if shift:
        p_value = f"{shift.p_value:.2g}" if shift.p_value >= 1e-4 else f"{shift.p_value:.0e}".replace("e-0", "e-")
        in_common = "" if overall.is_far_apart else f"ratio {ratio(shift.estimate)}, {interval(shift)}, "
        return shift.is_shown, f"{in_common}p = {p_value}, {runs}"
    evidence = f"geometric mean of the ratios {ratio(mean.ratio)}"
    if mean.low is None or mean.high is None:
        return Verdict.DIFFERS in verdicts, evidence
    ends = f"{percent(1 - mean.alpha)} interval {ratio(mean.low)} to {ratio(mean.high)}"
    return not mean.low <= 1 <= mean.high, f"{evidence}, {ends}"


def _say_both(comparison: Comparison, tests: Sequence[Test], metric: Metric) -> str:
    """Return two differences in one direction, each with its block, and costs with their medians."""
    said: list[str] = []
    for test in tests:
        how = _how_much(test, replace(metric, better=None) if said else metric)
        (name,) = _name_blocks([test.block], comparison.layout)
        write = notation([test.other.median, test.baseline.median], test.unit)
        medians = f" ({write.write_bare(test.other.median)} against {write.write(test.baseline.median)})"
        said.append(f"{how} for {name}{medians if metric.group == 'Cost' else ''}")
    return ", ".join(said)


def _range(tests: Sequence[Test], metric: Metric) -> str:
    """Return the least and the largest of differences in one direction: 20 % higher to 2.5 × as high (better)."""
    nearest = sorted(tests, key=lambda test: abs(test.judgement.shift.estimate - test.judgement.shift.neutral))
    least, most = _how_much(nearest[0], replace(metric, better=None)), _how_much(nearest[-1], metric)
    for direction in (" higher", " lower"):
        if direction in most:  # it is said once
            least = least.removesuffix(direction)
    return most if most.startswith(f"{least} ") or most == least else f"{least} to {most}"


def _one_by_one(comparison: Comparison, tests: Sequence[Test]) -> str:
    """Return what tests of the same two sides show one by one."""
    layout, metric = comparison.layout, _find_judged(comparison, tests)
    this, that = layout.facet.where(tests[0].other.side), layout.facet.name_side(tests[0].baseline.side)
    listed = "; ".join(_list_verdicts(comparison, tests, metric))
    return f"{spoken(metric, comparison.request.stat)} {this} compared with {that} is {listed}"


def _list_verdicts(comparison: Comparison, tests: Sequence[Test], metric: Metric) -> list[str]:
    """Return for which blocks tests show what: first those that differ, by direction."""
    by_verdict: dict[Verdict, list[Test]] = defaultdict(list)
    for test in tests:
        by_verdict[test.judgement.verdict].append(test)
    differing = by_verdict[Verdict.DIFFERS]
    rising = [test for test in differing if test.judgement.shift.estimate > test.judgement.shift.neutral]
    falling = [test for test in differing if test not in rising]
    # The first says which direction is better.
    judged = [metric, replace(metric, better=None)]
    groups = [
        (_range(group, each), group) for each, group in zip(judged, filter(None, (rising, falling)), strict=False)
    ]
    groups += [
        (f"the same to within {percent(comparison.figures.delta)}", by_verdict[Verdict.EQUAL]),
        ("undecided", by_verdict[Verdict.NOT_SHOWN]),
        ("undecided by so few runs", by_verdict[Verdict.TOO_FEW]),
    ]
    blocks = [(words, [test.block for test in group]) for words, group in groups if group]
    return [f"{words} for {first_few(_name_blocks(of_words, comparison.layout))}" for words, of_words in blocks]


def _name_blocks(blocks: Sequence[Block], layout: Layout) -> list[str]:
    """Return the names of blocks; a workload of which all settings are among them has its own."""
    others = {block.workload for block in layout.blocks if all(block is not each for each in blocks)}
    names = (tell_apart(block, layout.blocks, briefly=True) for block in blocks)
    return list(
        dict.fromkeys(
            name if block.workload in others else block.workload for name, block in zip(names, blocks, strict=True)
        )
    )


def _over(comparison: Comparison, overall: Overall) -> str:
    tests = comparison.figures.tests_of(overall)
    workloads = {test.block.workload for test in tests}
    over = "settings" if len(workloads) == 1 else "workloads or settings"
    return f"Over {overall.mean.pairs} {'workloads' if len(workloads) == len(tests) else over}"


def _ranked_sentence(comparison: Comparison, ranked: Sequence[Overall]) -> str:
    """Return the best side over all blocks and the worst one, each by its test against the baseline."""
    ends = [_place(comparison, ranked[-1], is_highest=True), _place(comparison, ranked[0], is_highest=False)]
    best, worst = ends if comparison.figures.primary.better is Better.HIGHER else reversed(ends)
    # What both are compared with is named once.
    where = comparison.layout.facet.where(ranked[0].baseline)
    if best.endswith(f" {where}") or worst.endswith(f" {where}"):
        for word in ("than", "as"):
            best, worst = (said.replace(f" {word} {where} (", " (") for said in (best, worst))
    return f"{_over_ranked(comparison, ranked)} {best}, and {worst}."


def say_behind(comparison: Comparison) -> str:
    """Return how far the sides that are shown to differ from the baseline are from it: the nearest and the farthest."""
    facet, ranked, said = comparison.layout.facet, rank_sides(comparison), []
    behind = {one.side: (one, one.common) for one in ranked if one.common and one.is_shown}
    sides = sorted(behind, key=lambda side: abs(log(behind[side][1].estimate)))
    for side in dict.fromkeys((sides[0], sides[-1])):
        how, evidence = _how_far(comparison, *behind[side])
        said.append(f"{how} {facet.where(side)}{evidence}")
    than = f"{_than(how)} {facet.where(ranked[0].baseline)}"
    return f"{_over_ranked(comparison, ranked)} {' and '.join(said)} {than}."


def _over_ranked(comparison: Comparison, ranked: Sequence[Overall]) -> str:
    return f"{_over(comparison, ranked[0])}: {spoken(comparison.figures.primary, comparison.request.stat)} is"


def _place(comparison: Comparison, one: Overall, *, is_highest: bool) -> str:
    """Return a side that has the highest or lowest ratio to the baseline, or else the baseline."""
    facet = comparison.layout.facet
    word, shift = "highest" if is_highest else "lowest", one.common
    if shift is None or (shift.estimate > 1) is not is_highest:
        return f"{word} {facet.where(one.baseline)}"
    how, evidence = _how_far(comparison, one, shift)
    by = f"{how} {_than(how)} {facet.where(one.baseline)}"
    if not one.is_shown:
        by = f"without a measurable difference to {facet.name_side(one.baseline)}"
    return f"{word} {facet.where(one.side)}, {by}{evidence}"


def _how_far(comparison: Comparison, one: Overall, shift: Shift) -> tuple[str, str]:
    """Return how far a side is from the baseline, and its evidence; without one ratio, the range of the blocks."""
    metric, tests = replace(comparison.figures.primary, better=None), comparison.figures.tests_of(one)
    shown = [test for test in tests if test.judgement.verdict is Verdict.DIFFERS]
    is_one_way = len({test.judgement.shift.estimate > 1 for test in shown}) == 1
    if one.is_shown and is_one_way and one.is_far_apart:
        named = first_few(_name_blocks([test.block for test in shown], comparison.layout))
        return _range(shown, metric), f" for {named}" if len(shown) < len(tests) else ""
    return _by_ratio(shift.estimate, metric), f" (ratio {ratio(shift.estimate)}, {interval(shift)})"


def _how_much(test: Test, metric: Metric) -> str:
    shift = test.judgement.shift
    if shift.scale is Scale.RATIO:
        return _by_ratio(shift.estimate, metric)
    rises = shift.estimate > 0
    size = notation([shift.estimate], test.unit).write(abs(shift.estimate))
    return f"{size} {'higher' if rises else 'lower'}{_judged(metric, rises=rises)}"


def _by_ratio(estimate: float, metric: Metric) -> str:
    rises = estimate > 1
    if 0 < estimate < _SMALL_RATIO:
        return f"{significant(float(f'{1 / estimate:.1e}'))} times lower{_judged(metric, rises=rises)}"
    direction = "as high" if estimate >= 2 else "higher" if rises else "lower"
    return f"{change(estimate).lstrip('+−')} {direction}{_judged(metric, rises=rises)}"


def _than(how_much: str) -> str:
    """Return the word before what something is compared with: 2.1 × as high as, 20 % higher than."""
    return "as" if " as high" in how_much else "than"


def _judged(metric: Metric, *, rises: bool) -> str:
    if metric.better is None:
        return ""
    return " (better)" if rises is (metric.better is Better.HIGHER) else " (worse)"


def _evidence(test: Test, *, with_medians: bool = True) -> str:
    """Return the evidence of a statement: the other side first, as in the statement and the ratio.

    Of several sides the table below has the medians.
    """
    medians = (test.other.median, test.baseline.median)
    write = notation(medians, test.unit).write
    shift = test.judgement.shift
    kind, figure = ("ratio", ratio) if shift.scale is Scale.RATIO else ("difference", significant)
    both = f"medians {write(medians[0])} and {write(medians[1])}, " if with_medians else ""
    kind += " of single runs" * is_far_from_medians(shift, *medians)
    return f"{both}{kind} {figure(shift.estimate)}, {interval(shift)}, " + (
        f"{test.pairs:,} pairs of runs" if test.pairs else f"{test.other.runs:,} and {test.baseline.runs:,} runs"
    )


def say_why(comparison: Comparison, *, most: int, of_costs: bool = False) -> list[str]:
    """Return where the first differences come from, as far as that is known; `of_costs`: those beside the primary."""
    layout, is_cost_primary = comparison.layout, comparison.figures.primary.group == "Cost"
    reasons = [
        because
        for because in headline_reasons(comparison)
        if because.words and (because.what == "cost" and not is_cost_primary) is of_costs
    ]
    if len(layout.blocks) > 1 and len(reasons) > most:
        return _common_reasons(comparison, reasons)
    sentences = []
    for because in reasons:
        if sentence := say(because, layout, comparison.specs, names_both=comparison.headline is not None):
            name = tell_apart(because.block, layout.blocks)
            sentences.append(f"{name}: {sentence[0].lower()}{sentence[1:]}" if len(layout.blocks) > 1 else sentence)
    return sentences[:most]


def headline_reasons(comparison: Comparison) -> list[Because]:
    """Return the reasons of that which the first sentences say: of a sweep, of its best side and of the cheapest."""
    best = comparison.headline
    if best is None:
        return list(comparison.reasons)
    cost = cost_row(comparison.figures.blocks[0])
    spoken_sides = {best.unit: best.other.side}
    if cost and cost.shifts:
        spoken_sides[cost.unit] = telling_side(cost, best.baseline.side, best.other.side)
    return [each for each in comparison.reasons if each.side == spoken_sides.get(each.unit, best.other.side)]


# Of the subject of a reason and its verb: the CPU waits, the work takes.
_SUBJECT_WORDS = 3


def _common_reasons(comparison: Comparison, reasons: Sequence[Because]) -> list[str]:
    """Return the reasons of sides, each with the workloads that have it; sides with the same ones together."""
    layout = comparison.layout
    found: dict[str, dict[str, list[Block]]] = defaultdict(lambda: defaultdict(list))
    for because in reasons:
        found[because.side][because.words or ""].append(because.block)
    sides: dict[str, list[str]] = defaultdict(list)
    for side, of_side in found.items():
        listed: list[str] = []
        subjects = {tuple(words.split(" ")[:_SUBJECT_WORDS]) for words in of_side}
        for words, blocks in of_side.items():
            # The same one is said once.
            named = " ".join(words.split(" ")[_SUBJECT_WORDS:]) if listed and len(subjects) == 1 else words
            every = "in both" if not blocks[2:] else f"in all {len(blocks)}"
            is_some = len(blocks) < len(layout.blocks)
            listed.append(f"{named} ({first_few(_name_blocks(blocks, layout)) if is_some else every})")
        sides["; ".join(listed)].append(layout.facet.where(side))
    return [f"Because {join_words(names)} {said}." for said, names in sides.items()]
