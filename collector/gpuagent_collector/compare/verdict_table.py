"""The tests of a comparison as a table: the sides, their distance, and the verdict."""

from collections import defaultdict
from collections.abc import Iterator

from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.compare.figures import Overall, Test
from gpuagent_collector.output.document import Grid
from gpuagent_collector.output.human import Notation, notation, ratio
from gpuagent_collector.output.values import ABSENT
from gpuagent_collector.runs.cells import tell_apart
from gpuagent_collector.runs.words import percent, spoken, write_shift

_INDENT = " "


def verdict_table(comparison: Comparison) -> Grid:
    """Return a row for each test; for several blocks under a heading for each two sides, with the geometric mean."""
    figures = comparison.figures
    unit = _common_unit(comparison)
    title = spoken(figures.primary, comparison.request.stat) + (f", {unit}" if unit else "")
    header = ("workload" if len(figures.blocks) > 1 else "sides", "runs", title, "ratio [interval]", "verdict")
    return Grid(header=header, rows=tuple(cells for cells, _ in verdict_rows(comparison)))


def verdict_rows(comparison: Comparison) -> Iterator[tuple[tuple[str, ...], Test | Overall | None]]:
    """Yield the rows of the table, each with its test or mean; None: a heading."""
    figures = comparison.figures
    several, bare = len(figures.blocks) > 1, _common_unit(comparison) is not None
    groups: dict[str, list[Test]] = defaultdict(list)
    for test in figures.tests:
        groups[f"{test.other.side} / {test.baseline.side}"].append(test)
    for sides, tests in groups.items():
        if several:
            yield (sides,), None
        for test in tests:
            name = f"{_INDENT}{tell_apart(test.block, comparison.layout.blocks)}" if several else sides
            scale = _scale(test, comparison)
            reference = (scale.write_bare if bare else scale.write)(test.baseline.median)
            cells = (
                name,
                f"{test.other.runs} / {test.baseline.runs}",
                f"{scale.write_bare(test.other.median)} / {reference}",
                write_shift(test.judgement.shift, scale),
                test.judgement.verdict.value,
            )
            yield cells, test
        for overall in figures.overall:
            if f"{overall.side} / {overall.baseline}" == sides:
                yield _overall_row(overall), overall


def verdict_legend(comparison: Comparison) -> str:
    """Return the meaning of the verdicts, and the level at which they were tested."""
    figures = comparison.figures
    tests = len(figures.tests)
    sentences = [f"Verdicts: differs, = (the same to within {percent(figures.delta)}), ~ (neither shown), n too small."]
    if tests > 1:
        sentences.append(f"All {tests} are tested together (Holm), so intervals are wider than one at 95 %.")
    if figures.overall:
        sentences.append(
            "Geometric mean: of these ratios, each counted once; not tested. It is in its interval at least "
            f"{percent(1 - figures.alpha)} of the time, for these workloads and no others."
        )
    return " ".join(sentences)


def _common_unit(comparison: Comparison) -> str | None:
    """Return the unit for the header; None: the tests have several, or none."""
    symbols = {_scale(test, comparison).symbol for test in comparison.figures.tests}
    return (symbols.pop() or None) if len(symbols) == 1 else None


def _scale(test: Test, comparison: Comparison) -> Notation:
    return notation((test.baseline.median, test.other.median), comparison.figures.primary.unit)


def _overall_row(overall: Overall) -> tuple[str, ...]:
    mean = overall.mean
    bounds = ABSENT if mean.low is None or mean.high is None else f"{ratio(mean.low)}, {ratio(mean.high)}"
    return (f"{_INDENT}geometric mean of {mean.pairs}", "", "", f"{ratio(mean.ratio)} [{bounds}]", "")
