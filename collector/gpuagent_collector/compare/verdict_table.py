"""The tests of a comparison as a table: who against whom, how far apart, and what that shows."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from gpuagent_collector.compare.answer import spoken
from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.compare.figures import Figures, Overall, Test
from gpuagent_collector.output.document import Grid
from gpuagent_collector.output.human import Notation, notation, ratio, significant
from gpuagent_collector.output.values import ABSENT
from gpuagent_collector.runs.cells import tell_apart
from gpuagent_collector.statistics.shift import Scale, Shift

_INDENT = " "


def verdict_table(comparison: Comparison) -> Grid:
    """Return a row for each test; of several blocks under a heading for each two sides, with their geometric mean."""
    figures = comparison.figures
    unit = _common_unit(figures)
    title = spoken(figures.primary, comparison.request.stat) + (f", {unit}" if unit else "")
    header = ("workload" if len(figures.blocks) > 1 else "sides", "runs", title, "ratio [interval]", "verdict")
    return Grid(header=header, rows=tuple(cells for cells, _ in verdict_rows(comparison)))


def verdict_rows(comparison: Comparison) -> Iterator[tuple[tuple[str, ...], Test | Overall | None]]:
    """Yield the rows of the table, each with what it is of; None: a heading."""
    figures = comparison.figures
    several, bare = len(figures.blocks) > 1, _common_unit(figures) is not None
    for sides, tests in _by_sides(figures.tests).items():
        names = [tell_apart(test.block, comparison.layout.blocks) for test in tests] if several else [sides]
        if several:
            yield (sides,), None
        for name, test in zip(names, tests, strict=True):
            yield _test_row(name, test, figures, bare=bare), test
        for overall in figures.overall:
            if _sides(overall.side, overall.baseline) == sides:
                yield _overall_row(overall), overall


def verdict_legend(comparison: Comparison) -> str:
    """Return what the verdicts mean, and at which level they were tested."""
    figures = comparison.figures
    delta, tests = significant(100 * figures.delta), len(figures.tests)
    sentences = [f"Verdicts: differs, = (the same to within {delta} %), ~ (neither is shown), n too small."]
    if tests > 1:
        sentences.append(f"All {tests} are tested together (Holm), so intervals are wider than one at 95 %.")
    if figures.overall:
        sentences.append(
            "Geometric mean: of these ratios, each counted once; not tested. It lies in its interval at least "
            f"{significant(100 * (1 - figures.alpha))} % of the time, for these workloads and no others."
        )
    return " ".join(sentences)


def write_shift(shift: Shift, scale: Notation) -> str:
    """Return the estimate and its interval: `0.659 [0.612, 0.708]`, `Δ +1.2 [+0.9, +1.5]`, or `0.659 [–]` for none."""
    write = ratio if shift.scale is Scale.RATIO else scale.write_difference
    if is_same(shift):
        return "the same"
    estimate = f"{'' if shift.scale is Scale.RATIO else 'Δ '}{write(shift.estimate)}"
    if shift.low is None or shift.high is None:
        return f"{estimate} [{ABSENT}]"
    return f"{estimate} [{write(shift.low)}, {write(shift.high)}]"


def is_same(shift: Shift) -> bool:
    """Return whether the figures of both sides are the same to the last digit, in enough runs for an interval."""
    return shift.estimate == shift.low == shift.high == (1 if shift.scale is Scale.RATIO else 0)


def _sides(side: str, baseline: str) -> str:
    return f"{side} / {baseline}"


def _by_sides(tests: Sequence[Test]) -> dict[str, list[Test]]:
    groups: dict[str, list[Test]] = defaultdict(list)
    for test in tests:
        groups[_sides(test.other.side, test.baseline.side)].append(test)
    return groups


def _common_unit(figures: Figures) -> str | None:
    """Return the unit that stands in the header; None: the tests have several, or none."""
    symbols = {_scale(test, figures).symbol for test in figures.tests}
    return (symbols.pop() or None) if len(symbols) == 1 else None


def _scale(test: Test, figures: Figures) -> Notation:
    return notation((test.baseline.median, test.other.median), figures.primary.unit)


def _test_row(name: str, test: Test, figures: Figures, *, bare: bool) -> tuple[str, ...]:
    scale = _scale(test, figures)
    reference = scale.write_bare(test.baseline.median) if bare else scale.write(test.baseline.median)
    return (
        f"{_INDENT}{name}" if len(figures.blocks) > 1 else name,
        f"{test.other.runs} / {test.baseline.runs}",
        f"{scale.write_bare(test.other.median)} / {reference}",
        write_shift(test.judgement.shift, scale),
        test.judgement.verdict.value,
    )


def _overall_row(overall: Overall) -> tuple[str, ...]:
    mean = overall.mean
    bounds = ABSENT if mean.low is None or mean.high is None else f"{ratio(mean.low)}, {ratio(mean.high)}"
    return (
        f"{_INDENT}geometric mean of {mean.pairs}",
        "",
        "",
        f"{ratio(mean.ratio)} [{bounds}]",
        "",
    )
