"""A comparison as a document of paragraphs and tables, for the terminal and for Markdown."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from gpuagent_collector.compare.answer import answer
from gpuagent_collector.compare.cells import describe, tell_apart
from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.compare.figures import BlockFigures, Figure, Row, Test
from gpuagent_collector.compare.statistics import Scale, Shift
from gpuagent_collector.output.human import Notation, change, notation, ratio, significant
from gpuagent_collector.output.values import ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """Running text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bullets:
    """Points, each with what to do about it."""

    points: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table. A row of one cell is a heading within it; columns from `figures_from` on are numbers."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    figures_from: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading and what stands under it."""

    heading: str
    parts: tuple[Paragraph | Bullets | Grid, ...]


_MARK = "≠"
"""Marks a property in which the sides differ."""


def build_document(comparison: Comparison, *, wide: bool) -> list[Section]:
    """Return the document; `wide` adds columns for which a narrow terminal has no room."""
    return [
        Section(
            heading=f"Comparison by {comparison.layout.facet.name}: {' · '.join(comparison.layout.sides)}",
            parts=(
                Paragraph(text=answer(comparison)),
                _verdicts(comparison),
                Paragraph(text=_verdict_legend(comparison)),
            ),
        ),
        Section(heading=_spec_heading(comparison), parts=(_specs(comparison),)),
        *_blocks(comparison, wide),
        *_warnings(comparison),
    ]


def _verdicts(comparison: Comparison) -> Grid:
    figures = comparison.figures
    several = len(figures.blocks) > 1
    header = ("workload", "sides", "runs", f"{figures.primary.title.lower()}, medians", "ratio [interval]", "verdict")
    rows = [_verdict_row(test, comparison) for test in figures.tests]
    if several:
        return Grid(header=header, rows=tuple(rows), figures_from=2)
    return Grid(header=header[1:], rows=tuple(row[1:] for row in rows))


def _verdict_legend(comparison: Comparison) -> str:
    delta = significant(100 * comparison.figures.delta)
    tests = len(comparison.figures.tests)
    holm = f" All {tests} are tested together (Holm), so intervals are wider than one at 95 %." if tests > 1 else ""
    return f"Verdicts: differs, = (the same to within {delta} %), ~ (neither is shown), n too small.{holm}"


def _verdict_row(test: Test, comparison: Comparison) -> tuple[str, ...]:
    medians = (test.baseline.median, test.other.median)
    scale = notation(medians, comparison.figures.primary.unit)
    return (
        tell_apart(test.block, comparison.layout.blocks),
        f"{test.other.side} / {test.baseline.side}",
        f"{test.other.runs} / {test.baseline.runs}",
        f"{scale.write_bare(medians[1])} / {scale.write(medians[0])}",
        write_shift(test.judgement.shift, scale),
        test.judgement.verdict.value,
    )


def write_shift(shift: Shift, scale: Notation) -> str:
    """Return the estimate and its interval: `0.659 [0.612, 0.708]`, `Δ +1.2 [+0.9, +1.5]`, or `0.659 [–]` for none."""
    write = ratio if shift.scale is Scale.RATIO else scale.write_difference
    if _same(shift):
        return "the same"
    estimate = f"{'' if shift.scale is Scale.RATIO else 'Δ '}{write(shift.estimate)}"
    if shift.low is None or shift.high is None:
        return f"{estimate} [{ABSENT}]"
    return f"{estimate} [{write(shift.low)}, {write(shift.high)}]"


def _same(shift: Shift) -> bool:
    return shift.estimate == shift.low == shift.high == (1 if shift.scale is Scale.RATIO else 0)


def _spec_heading(comparison: Comparison) -> str:
    return "Where" if _differing(comparison) else "Where: the same on all sides"


def _differing(comparison: Comparison) -> bool:
    return any(row.differs for row in comparison.specs)


def _specs(comparison: Comparison) -> Grid:
    if not _differing(comparison):
        rows = tuple((row.title, _joined(row.values[0])) for row in comparison.specs)
        return Grid(header=("", "all sides"), rows=rows, figures_from=2)
    return Grid(
        header=("", "", *comparison.layout.sides),
        rows=tuple((_MARK if row.differs else "", row.title, *map(_joined, row.values)) for row in comparison.specs),
        figures_from=2 + len(comparison.layout.sides),
    )


def _joined(values: Sequence[str]) -> str:
    if len(values) > 4:
        return f"{', '.join(values[:3])}, … ({len(values)} in all)"
    return ", ".join(values) or ABSENT


def _blocks(comparison: Comparison, wide: bool) -> Iterator[Section]:
    for block in comparison.figures.blocks:
        grids = [
            _metrics(block, side, comparison, wide)
            for side in (cell.side for cell in block.block.cells if cell.runs)
            if side != block.block.baseline
        ]
        legend = Paragraph(text=_legend(comparison, block))
        yield Section(
            heading=tell_apart(block.block, comparison.layout.blocks),
            parts=(Paragraph(text=f"Ran as {describe(block.block)}"), *grids, legend),
        )


def _legend(comparison: Comparison, block: BlockFigures) -> str:
    confidence = significant(100 * (1 - comparison.figures.alpha))
    sentences = [
        f"Medians over runs, of the measured phase; ratios with their {confidence} % interval (Hodges-Lehmann, "
        "Mann-Whitney)."
    ]
    shifts = [shift for row in block.rows for shift in row.shifts.values()]
    if any(shift.scale is Scale.DIFFERENCE and not _same(shift) for shift in shifts):
        sentences.append("Δ: a difference, where zeros allow no ratio.")
    if any(shift.low is None for shift in shifts):
        sentences.append("[–]: so few runs bound nothing.")
    if any(row.metric is comparison.figures.primary for row in block.rows):
        sentences.append("*: the metric that was tested, with the interval of its test.")
    return " ".join(sentences)


def _metrics(block: BlockFigures, side: str, comparison: Comparison, wide: bool) -> Grid:
    runs = {cell.side: len(cell.runs) for cell in block.block.cells}
    header = ["", f"{block.block.baseline} (n {runs[block.block.baseline]})", f"{side} (n {runs[side]})"]
    header += [f"ratio [{significant(100 * (1 - comparison.figures.alpha))} %]"]
    if wide:
        header += ["change", f"range of {block.block.baseline}", f"range of {side}"]
    rows: list[tuple[str, ...]] = []
    for group, members in groupby(block.rows, key=lambda row: row.metric.group):
        lines = [_metric_row(row, block.block.baseline, side, runs, comparison, wide) for row in members]
        rows += [(group,), *lines]
    return Grid(header=tuple(header), rows=tuple(rows))


def _metric_row(
    row: Row, baseline: str, side: str, runs: dict[str, int], comparison: Comparison, wide: bool
) -> tuple[str, ...]:
    figures = [row.figures.get(baseline), row.figures.get(side)]
    scale = notation([figure.median for figure in figures if figure], row.metric.unit)
    shift = row.shifts.get(side)
    cells = [f"{row.metric.title}{' *' if row.metric is comparison.figures.primary else ''}"]
    cells += [_median(figure, scale, runs) for figure in figures]
    cells += [write_shift(shift, scale) if shift else ABSENT]
    if wide:
        cells += [_change(shift), *(_range(figure, scale) for figure in figures)]
    return tuple(cells)


def _median(figure: Figure | None, scale: Notation, runs: dict[str, int]) -> str:
    if figure is None:
        return ABSENT
    fewer = f" (n {figure.runs})" if figure.runs != runs[figure.side] else ""
    return scale.write(figure.median) + fewer


def _range(figure: Figure | None, scale: Notation) -> str:
    return ABSENT if figure is None else f"{scale.write_bare(figure.lowest)} to {scale.write(figure.highest)}"


def _change(shift: Shift | None) -> str:
    return change(shift.estimate) if shift and shift.scale is Scale.RATIO else ABSENT


def _warnings(comparison: Comparison) -> Iterator[Section]:
    if comparison.caveats:
        points = tuple((caveat.text, caveat.remedy) for caveat in comparison.caveats)
        yield Section(heading="Warnings", parts=(Bullets(points=points),))
