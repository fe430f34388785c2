"""The answer of a comparison in words: one paragraph."""

from collections import Counter
from math import log

from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.compare.described import describe_sides
from gpuagent_collector.compare.figures import Overall, Row, Test
from gpuagent_collector.metrics import Better, Metric
from gpuagent_collector.output.document import in_short, read_warnings
from gpuagent_collector.output.human import change, notation, ratio, significant
from gpuagent_collector.runs.cells import tell_apart
from gpuagent_collector.runs.words import interval, percent, spoken
from gpuagent_collector.statistics.shift import Scale, Shift
from gpuagent_collector.statistics.verdicts import Verdict

# The table has the others.
_SPOKEN_TESTS = 3
_SPOKEN_METRICS = 3
# Possible causes: the load of the node's parts.
_LOADS = (
    "cpu_percent",
    "process_cpu_cores",
    "memory_used_bytes",
    "gpu_utilization_percent",
    "sm_active_percent",
    "gpu_memory_used_bytes",
    "gpu_power_watts",
)


def short_answer(comparison: Comparison) -> str:
    """Return the first result of the comparison, with its evidence and the number of other results."""
    if not comparison.layout.is_compared:
        return describe_sides(comparison, most=1)
    return " ".join([*_results(comparison, most=1), *_moved(comparison)])


def answer(comparison: Comparison) -> str:
    """Return the results of the comparison, and their evidence."""
    if not comparison.layout.is_compared:
        return describe_sides(comparison, most=_SPOKEN_TESTS)
    caveats = read_warnings(len(comparison.caveats))
    return " ".join([*_results(comparison, most=_SPOKEN_TESTS), *_moved(comparison), *caveats])


def _results(comparison: Comparison, *, most: int) -> list[str]:
    tests, overall = comparison.figures.tests, comparison.figures.overall
    if overall and len(tests) > _SPOKEN_TESTS:
        sentences = [_overall_sentence(comparison, one) for one in overall]
    else:
        sentences = [_sentence(comparison, test) for test in tests]
    return in_short(sentences, most=most, where="table has")


def _sentence(comparison: Comparison, test: Test) -> str:
    facet, metric = comparison.layout.facet, comparison.figures.primary
    workload = tell_apart(test.block, comparison.layout.blocks, briefly=True)
    where = facet.preposition
    this, that = f"{where} {test.other.side}".lstrip(), f"{where} {test.baseline.side}".lstrip()
    title, delta = spoken(metric, comparison.request.stat), percent(comparison.figures.delta)
    between = f"between {test.other.side} and {test.baseline.side}"
    statement = {
        Verdict.DIFFERS: f"{title} is {_how_much(test, metric)} {this} than {that}",
        Verdict.EQUAL: f"{title} is the same {this} as {that}, to within {delta}",
        Verdict.NOT_SHOWN: f"the runs show neither a difference in {title} {between}, nor equality to within {delta}",
        Verdict.TOO_FEW: f"the runs are too few to show any difference in {title} {between}",
    }[test.judgement.verdict]
    return f"{workload}: {statement} ({_evidence(test)})."


def _overall_sentence(comparison: Comparison, overall: Overall) -> str:
    """Return a geometric mean with its interval, and the number of each verdict on its tests."""
    metric, mean = comparison.figures.primary, overall.mean
    verdicts = Counter(
        test.judgement.verdict
        for test in comparison.figures.tests
        if (test.other.side, test.baseline.side) == (overall.side, overall.baseline)
    )
    counts = ", ".join(f"{number} {verdict.value}" for verdict, number in verdicts.items())
    where, title = comparison.layout.facet.preposition, spoken(metric, comparison.request.stat)
    this, that = (f"{where} {side}".lstrip() for side in (overall.side, overall.baseline))
    if mean.low is None or mean.high is None:
        is_shown, bounds = Verdict.DIFFERS in verdicts, ""
    else:
        is_shown = not mean.low <= 1 <= mean.high
        bounds = f", {percent(1 - mean.alpha)} interval {ratio(mean.low)} to {ratio(mean.high)}"
    statement = (
        f"{title} is {_by_ratio(mean.ratio, metric)} {this} than {that}"
        if is_shown
        else f"no difference in {title} is shown between {overall.side} and {overall.baseline}"
    )
    return (
        f"Over {mean.pairs} workloads or settings, {statement} "
        f"(geometric mean of the ratios {ratio(mean.ratio)}{bounds}; verdicts: {counts})."
    )


def _how_much(test: Test, metric: Metric) -> str:
    shift = test.judgement.shift
    if shift.scale is Scale.RATIO:
        return _by_ratio(shift.estimate, metric)
    rises = shift.estimate > 0
    size = notation([shift.estimate], test.unit).write(abs(shift.estimate))
    return f"{size} {'higher' if rises else 'lower'}{_judged(metric, rises=rises)}"


def _by_ratio(estimate: float, metric: Metric) -> str:
    rises = estimate > 1
    direction = "as high" if estimate >= 2 else "higher" if rises else "lower"
    return f"{change(estimate).lstrip('+−')} {direction}{_judged(metric, rises=rises)}"


def _judged(metric: Metric, *, rises: bool) -> str:
    if metric.better is None:
        return ""
    return " (better)" if rises is (metric.better is Better.HIGHER) else " (worse)"


def _evidence(test: Test) -> str:
    """Return the evidence of a statement: the other side first, as in the statement and the ratio."""
    medians = (test.other.median, test.baseline.median)
    write = notation(medians, test.unit).write
    shift = test.judgement.shift
    kind, figure = ("ratio", ratio) if shift.scale is Scale.RATIO else ("difference", significant)
    return (
        f"medians {write(medians[0])} and {write(medians[1])}, {kind} {figure(shift.estimate)}, {interval(shift)}, "
        + (f"{test.pairs:,} pairs of runs" if test.pairs else f"{test.other.runs:,} and {test.baseline.runs:,} runs")
    )


def _moved(comparison: Comparison) -> list[str]:
    """Return the loads that changed most, for the simplest comparison: one block of two sides."""
    blocks = comparison.figures.blocks
    if len(blocks) != 1 or len(comparison.layout.sides) != 2:
        return []
    moved = [
        (row, shift)
        for row in blocks[0].rows
        for shift in row.shifts.values()
        if row.metric.name in _LOADS and shift.scale is Scale.RATIO and shift.is_shown
    ]
    moved.sort(key=lambda pair: -abs(log(pair[1].estimate)))

    def words(row: Row, shift: Shift) -> str:
        before, after, *_ = (figure.median for figure in row.figures.values())
        write = notation([before, after], row.unit).write
        return (
            f"{spoken(row.metric, comparison.request.stat)} {write(before)} → {write(after)} ({change(shift.estimate)})"
        )

    listed = [words(*pair) for pair in moved[:_SPOKEN_METRICS]]
    return [f"Other large changes: {'; '.join(listed)} (intervals only, not tested)."] if listed else []
