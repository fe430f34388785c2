"""The answer of a comparison in words: one paragraph."""

from collections import Counter
from math import log

from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.compare.figures import Overall, Row, Test
from gpuagent_collector.metrics import Better, Metric, Stat
from gpuagent_collector.output.human import change, notation, ratio, significant
from gpuagent_collector.runs.cells import tell_apart
from gpuagent_collector.statistics.shift import Scale, Shift, Verdict

# More than these are left to the table.
_SPOKEN_TESTS = 3
_SPOKEN_METRICS = 3
# What hints at the cause: how busy the parts of the node were.
_TOLD_BESIDE = (
    "cpu_percent",
    "process_cpu_cores",
    "memory_used_bytes",
    "gpu_utilization_percent",
    "sm_active_percent",
    "gpu_memory_used_bytes",
    "gpu_power_watts",
)


def answer(comparison: Comparison) -> str:
    """Return what the comparison shows, and on what it rests."""
    tests, overall = comparison.figures.tests, comparison.figures.overall
    if overall and len(tests) > _SPOKEN_TESTS:
        sentences = [_overall_sentence(comparison, one) for one in overall[:_SPOKEN_TESTS]]
        untold = len(overall) - _SPOKEN_TESTS
    else:
        sentences = [_sentence(comparison, test) for test in tests[:_SPOKEN_TESTS]]
        untold = len(tests) - _SPOKEN_TESTS
    if untold > 0:
        sentences.append(f"The table has {untold} more.")
    sentences += _beside(comparison)
    number = len(comparison.caveats)
    if number:
        sentences.append(f"Read the {'warning' if number == 1 else f'{number} warnings'} below before acting on it.")
    return " ".join(sentences)


def spoken(metric: Metric, stat: Stat | None) -> str:
    """Return the metric's title within a sentence; acronyms keep their capitals."""
    before, title = "", metric.title
    if stat and metric.quantity:
        before, title = _OF_SAMPLES[stat], metric.quantity
    return before + (title if title[:2].isupper() else title[0].lower() + title[1:])


# How a sentence speaks of each statistic.
_OF_SAMPLES = {
    Stat.MEAN: "mean ",
    Stat.MEDIAN: "median ",
    Stat.P95: "95th percentile of ",
    Stat.MAX: "highest ",
}


def interval(shift: Shift) -> str:
    """Return the shift's interval in words, with its confidence."""
    confidence = significant(100 * (1 - shift.alpha))
    if shift.low is None or shift.high is None:
        return f"no {confidence} % interval from so few runs"
    write = ratio if shift.scale is Scale.RATIO else significant
    return f"{confidence} % interval {write(shift.low)} to {write(shift.high)}"


def _sentence(comparison: Comparison, test: Test) -> str:
    facet, metric = comparison.layout.facet, comparison.figures.primary
    workload, where = tell_apart(test.block, comparison.layout.blocks), facet.preposition
    this, that = f"{where} {test.other.side}", f"{where} {test.baseline.side}"
    title = spoken(metric, comparison.request.stat)
    shift = test.judgement.shift
    delta = f"{significant(100 * comparison.figures.delta)} %"
    between = f"between {test.other.side} and {test.baseline.side}"
    statement = {
        Verdict.DIFFERS: f"{title} is {_how_much(shift, metric)} {this} than {that}",
        Verdict.EQUAL: f"{title} is the same {this} as {that}, to within {delta}",
        Verdict.NOT_SHOWN: f"the runs show neither a difference in {title} {between}, nor equality to within {delta}",
        Verdict.TOO_FEW: f"the runs are too few to show any difference in {title} {between}",
    }[test.judgement.verdict]
    return f"{workload}: {statement} ({_evidence(test, metric)})."


def _overall_sentence(comparison: Comparison, overall: Overall) -> str:
    """Return what a geometric mean says, and how the verdicts fell that it is over."""
    facet, metric, mean = comparison.layout.facet, comparison.figures.primary, overall.mean
    verdicts = Counter(
        test.judgement.verdict
        for test in comparison.figures.tests
        if (test.other.side, test.baseline.side) == (overall.side, overall.baseline)
    )
    fell = ", ".join(f"{number} {verdict.value}" for verdict, number in verdicts.items())
    title = spoken(metric, comparison.request.stat)
    this, that = (f"{facet.preposition} {side}" for side in (overall.side, overall.baseline))
    return (
        f"Over {mean.pairs} workloads or settings, {title} is {_by_ratio(mean.ratio, metric)} {this} than {that} "
        f"(geometric mean of the ratios {ratio(mean.ratio)}; verdicts: {fell})."
    )


def _how_much(shift: Shift, metric: Metric) -> str:
    if shift.scale is Scale.RATIO:
        return _by_ratio(shift.estimate, metric)
    rises = shift.estimate > 0
    size = notation([shift.estimate], metric.unit).write(abs(shift.estimate))
    return f"{size} {'higher' if rises else 'lower'}{_judged(metric, rises=rises)}"


def _by_ratio(estimate: float, metric: Metric) -> str:
    rises = estimate > 1
    direction = "as high" if estimate >= 2 else "higher" if rises else "lower"
    return f"{change(estimate).lstrip('+−')} {direction}{_judged(metric, rises=rises)}"


def _judged(metric: Metric, *, rises: bool) -> str:
    if metric.better is None:
        return ""
    return " (better)" if rises is (metric.better is Better.HIGHER) else " (worse)"


def _evidence(test: Test, metric: Metric) -> str:
    """Return what the statement rests on: the other side first, as the statement and the ratio have it."""
    medians = (test.other.median, test.baseline.median)
    write = notation(medians, metric.unit).write
    shift = test.judgement.shift
    kind = "ratio" if shift.scale is Scale.RATIO else "difference"
    estimate = ratio(shift.estimate) if shift.scale is Scale.RATIO else significant(shift.estimate)
    runs = f"{test.other.runs} and {test.baseline.runs} runs"
    return f"medians {write(medians[0])} and {write(medians[1])}, {kind} {estimate}, {interval(shift)}, {runs}"


def _beside(comparison: Comparison) -> list[str]:
    """Return what else moved most, for the simplest comparison: one block of two sides."""
    blocks = comparison.figures.blocks
    if len(blocks) != 1 or len(comparison.layout.sides) != 2:
        return []
    moved = [
        (row, shift)
        for row in blocks[0].rows
        for shift in row.shifts.values()
        if row.metric.name in _TOLD_BESIDE and _excludes_one(shift)
    ]
    moved.sort(key=lambda pair: -abs(log(pair[1].estimate)))
    told = [_move(row, shift, comparison.request.stat) for row, shift in moved[:_SPOKEN_METRICS]]
    return [f"Beside it moved most: {'; '.join(told)} (intervals only, not tested)."] if told else []


def _excludes_one(shift: Shift) -> bool:
    if shift.scale is not Scale.RATIO or shift.low is None or shift.high is None:
        return False
    return not shift.low <= 1 <= shift.high


def _move(row: Row, shift: Shift, stat: Stat | None) -> str:
    medians = [figure.median for figure in row.figures.values()]
    write = notation(medians, row.metric.unit).write
    return f"{spoken(row.metric, stat)} {write(medians[0])} → {write(medians[1])} ({change(shift.estimate)})"
