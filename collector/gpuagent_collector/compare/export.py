"""A comparison as a document, and in every format."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpuagent_collector.compare.answer import (
    answer,
    overview_table,
    part_figures,
    part_table,
    short_answer,
    spoken_part,
    value_legend,
    value_table,
)
from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.compare.figures import BlockFigures, Figure, Row, count
from gpuagent_collector.compare.plots import draw_charts, legend, phase_lines
from gpuagent_collector.compare.tables import metric_legend, metric_table, verdict_legend, verdict_table
from gpuagent_collector.present.answer import Bullets, Section, caveat_sections, shorten_sides
from gpuagent_collector.present.rendering import Rendering
from gpuagent_collector.present.table import Grid
from gpuagent_collector.present.terminal import is_wide, print_heading, print_sections
from gpuagent_collector.runs.cells import CANCELLED, Block, describe, tell_apart
from gpuagent_collector.runs.facets import name_sides
from gpuagent_collector.runs.series import Course
from gpuagent_collector.runs.specs import spec_table
from gpuagent_collector.statistics.shift import Shift
from gpuagent_common.text import counted, harmless

_TWO_CHARTS_COLUMNS = 140

# A screen of 24 lines has no room for more.
_MOST_WARNINGS = 3
_MOST_VERDICTS = 5


def build_document(comparison: Comparison, *, wide: bool) -> list[Section]:
    """Return the document; `wide` adds columns for which a narrow terminal has no room."""
    sections = [
        answer_section(comparison),
        *detail_sections(comparison, wide=wide),
        *caveat_sections(comparison.caveats),
    ]
    return shorten_sides(sections, comparison.layout.sides)


def answer_section(comparison: Comparison) -> Section:
    """Return the answer in words and its table: verdicts, or values where nothing is compared."""
    layout = comparison.layout
    sides = name_sides(layout.sides, layout.facet)
    if not layout.is_compared:
        heading = f"Values of {sides}" if len(layout.sides) == 1 else f"Values by {layout.facet.spoken}: {sides}"
        return Section(heading=heading, parts=(answer(comparison), overview_table(comparison)))
    return Section(
        heading=f"Comparison by {layout.facet.spoken}: {sides}",
        parts=(
            answer(comparison),
            verdict_table(comparison),
            verdict_legend(comparison),
        ),
    )


def detail_sections(comparison: Comparison, *, wide: bool, most: int | None = None) -> Iterator[Section]:
    """Yield the hardware of the sides, and the metrics of each block, or of the `most` largest ones."""
    sides = comparison.layout.sides
    differs = any(row.differs for row in comparison.specs)
    same = "" if differs or len(sides) == 1 else ": the same on all sides"
    yield Section(heading=f"Where{same}", parts=(spec_table(sides, comparison.specs),))
    yield from list(_blocks(comparison, wide))[:most]
    hidden = len(comparison.figures.blocks) - (most or len(comparison.figures.blocks))
    if hidden > 0:
        yield Section(heading=f"--all shows the metrics of {counted(hidden, 'more setting')}", parts=())


def _blocks(comparison: Comparison, wide: bool) -> Iterator[Section]:
    for block in comparison.figures.blocks:
        parts = part_table(block, comparison) if comparison.request.each else None
        legend = (metric_legend if comparison.layout.is_compared else value_legend)(comparison, block)
        yield Section(
            heading=tell_apart(block.block, comparison.layout.blocks),
            parts=(
                f"Ran as {describe(block.block)}",
                *_tables(block, comparison, wide=wide),
                *([parts] if parts else []),
                *([legend] if legend else []),
            ),
        )


def _tables(block: BlockFigures, comparison: Comparison, *, wide: bool) -> Iterator[Grid]:
    """Yield the baseline beside each other side, or the values where nothing is compared."""
    if not comparison.layout.is_compared:
        yield value_table(block, comparison)
        return
    for cell in block.block.cells:
        if cell.runs and cell.side != block.block.baseline:
            yield metric_table(block, cell.side, comparison, wide=wide)


def build_summary(comparison: Comparison) -> list[Section]:
    """Return the part of the document that fits on one screen: answer, verdicts and the gravest warnings."""
    more = "--all shows {}the metrics, the hardware and charts over time"
    shown, hidden = comparison.caveats[:_MOST_WARNINGS], len(comparison.caveats) - _MOST_WARNINGS
    end = Section(heading=more.format(f"{counted(hidden, 'more warning')}, " if hidden > 0 else ""), parts=())
    warnings = caveat_sections(shown)
    parts = part_sections(comparison)
    if not comparison.layout.is_compared:
        sections = [answer_section(comparison), *parts, *warnings, end]
        return _fold_remedies(shorten_sides(sections, comparison.layout.sides))
    verdicts = verdict_table(comparison)
    rows = [*verdicts.rows[:_MOST_VERDICTS]]
    if len(verdicts.rows) > len(rows):
        rows.append((f"… {len(verdicts.rows) - len(rows)} more",))
    first = replace(
        answer_section(comparison),
        parts=(
            short_answer(comparison),
            replace(verdicts, rows=tuple(rows)),
            verdict_legend(comparison).partition("small.")[0] + "small.",
        ),
    )
    return _fold_remedies(shorten_sides([first, *parts, *warnings, end], comparison.layout.sides))


def _fold_remedies(sections: Sequence[Section]) -> list[Section]:
    """Return the sections with each warning and its remedy in one line."""
    folded = []
    for section in sections:
        parts = [
            Bullets(points=tuple((f"{text} → {remedy}", "") for text, remedy in part.points))
            if isinstance(part, Bullets)
            else part
            for part in section.parts
        ]
        folded.append(replace(section, parts=tuple(parts)))
    return folded


def part_sections(comparison: Comparison) -> Iterator[Section]:
    """Yield the figures of each part of the runs, block by block."""
    each = comparison.request.each
    if each is None:
        return
    for block in comparison.figures.blocks:
        table = part_table(block, comparison)
        name = tell_apart(block.block, comparison.layout.blocks)
        missing = "These runs were summarised before their parts had figures; run them again."
        yield Section(heading=f"{name}: each {spoken_part(each)}", parts=(table or missing,))


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Print the comparison as wide as the console: a summary, or all of it where everything is requested."""
    if not comparison.request.everything:
        print_sections(console, build_summary(comparison))
        return
    print_sections(console, build_document(comparison, wide=is_wide(console)))
    courses = print_courses(console, comparison)
    for line in phase_lines(courses):
        console.print(Text(harmless(line), style="dim"))


def print_courses(console: Console, comparison: Comparison) -> Sequence[Course]:
    """Print the charts over time, as wide as the console, and return the courses in them."""
    courses = [course for course in comparison.courses if course.curves]
    if not courses:
        return courses
    measured = any(phase.name == "measure" for course in courses for phase in course.phases)
    zero = "where its measured phase began" if measured else "at its start"
    several = len({course.run.run_id for course in courses}) > 1
    whose = "the median run of each side" if several else courses[0].run.run_id
    print_heading(console, f"Over time: {whose}, 0 s {zero}")
    console.print(Text(harmless(legend(courses))))
    columns = 2 if console.width >= _TWO_CHARTS_COLUMNS else 1
    charts = [Text.from_ansi(chart) for chart in draw_charts(courses, console.width // columns - 2)]
    grid = Table.grid(padding=(0, 2, 0, 0))
    for start in range(0, len(charts), columns):
        grid.add_row(*charts[start : start + columns])
    console.print(grid)
    return courses


def render(comparison: Comparison) -> Rendering:
    """Return the forms of a comparison: CSV has a line for each metric of each cell, JSON all but the series."""
    return Rendering(
        sections=partial(build_document, comparison, wide=True),
        record=partial(_record, comparison),
        lines=partial(_lines, comparison),
        show=lambda console: print_comparison(console, comparison),
    )


def _record(comparison: Comparison) -> dict[str, Any]:
    figures, layout, stat = comparison.figures, comparison.layout, comparison.request.stat
    return {
        "answer": answer(comparison),
        "by": layout.facet.name,
        "sides": layout.sides,
        "where": comparison.request.where,
        "primary_metric": figures.primary.name,
        "stat": stat.value if stat else None,
        "delta": figures.delta,
        "alpha": figures.alpha,
        "tests": [
            {
                **_identity(test.block),
                "baseline": test.baseline.side,
                "side": test.other.side,
                "pairs": test.pairs,
                "verdict": test.judgement.verdict.value,
                **_shift(test.judgement.shift),
                "p_value": test.judgement.shift.p_value,
                "level": test.judgement.shift.alpha,
            }
            for test in figures.tests
        ],
        "geometric_means": [
            {"side": one.side, "baseline": one.baseline, **asdict(one.mean)} for one in figures.overall
        ],
        "blocks": [_block(block, comparison) for block in figures.blocks],
        "specs": [
            {"property": row.title, "differs": row.differs, "values": dict(zip(layout.sides, row.values, strict=True))}
            for row in comparison.specs
        ],
        "left_out": [asdict(one) for one in layout.left_out],
        "warnings": [asdict(caveat) for caveat in comparison.caveats],
    }


def _identity(block: Block) -> dict[str, Any]:
    return {"workload": block.workload, "parameters": block.parameters, "held": block.held}


def _block(figures: BlockFigures, comparison: Comparison) -> dict[str, Any]:
    cells = {cell.side: cell for cell in figures.block.cells}
    primary = comparison.figures.primary
    unsuccessful = {
        side: {status: number for status, number in cell.others.items() if status != CANCELLED}
        for side, cell in cells.items()
    }
    return {
        **_identity(figures.block),
        "baseline": figures.block.baseline,
        "runs": {side: [run.run_id for run in cell.runs] for side, cell in cells.items()},
        "unsuccessful": {side: failed for side, failed in unsuccessful.items() if failed},
        "counts": {side: asdict(count(cell, comparison.facts, primary)) for side, cell in cells.items()},
        "metrics": [
            {
                **_metric(row, comparison),
                "better": row.metric.better.value if row.metric.better else None,
                "sides": {side: _side(row, side) for side in row.figures},
            }
            for row in figures.rows
        ],
        "parts": {
            side: {
                part: {metric: _figure(figure) for metric, figure in of_part.items()} for part, of_part in parts.items()
            }
            for side, parts in part_figures(figures, comparison).items()
        },
    }


def _figure(figure: Figure) -> dict[str, Any]:
    return {"n": figure.runs, "median": figure.median, "lowest": figure.lowest, "highest": figure.highest}


def _metric(row: Row, comparison: Comparison) -> dict[str, Any]:
    stat = comparison.request.stat
    return {
        "metric": row.metric.name,
        "unit": row.unit,
        "stat": stat.value if stat and row.metric.quantity else None,
    }


def _side(row: Row, side: str) -> dict[str, Any]:
    figure, shift = row.figures[side], row.shifts.get(side)
    known = _figure(figure)
    return known if shift is None else {**known, **_shift(shift)}


def _shift(shift: Shift) -> dict[str, Any]:
    return {"scale": shift.scale.value, "estimate": shift.estimate, "low": shift.low, "high": shift.high}


# The columns of a side, in order.
_ABSENT = dict.fromkeys(("n", "median", "lowest", "highest", "scale", "estimate", "low", "high"))


def _lines(comparison: Comparison) -> Iterator[dict[str, Any]]:
    verdicts = {(id(test.block), test.other.side): test.judgement.verdict.value for test in comparison.figures.tests}
    each = comparison.request.each is not None
    for block in comparison.figures.blocks:
        for row in block.rows:
            tested = row.metric.name == comparison.figures.primary.name
            for side in row.figures:
                yield {
                    **_identity(block.block),
                    "by": comparison.layout.facet.name,
                    "side": side,
                    **({"part": None} if each else {}),
                    "baseline": block.block.baseline,
                    **_metric(row, comparison),
                    **(_ABSENT | _side(row, side)),
                    "verdict": verdicts.get((id(block.block), side)) if tested else None,
                }
        yield from _part_lines(block, comparison)


def _part_lines(block: BlockFigures, comparison: Comparison) -> Iterator[dict[str, Any]]:
    """Yield a line for each metric of each part, with the columns of the others."""
    rows = {row.metric.name: row for row in block.rows}
    for side, parts in part_figures(block, comparison).items():
        for part, figures in parts.items():
            for name, figure in figures.items():
                if name in rows:
                    yield {
                        **_identity(block.block),
                        "by": comparison.layout.facet.name,
                        "side": side,
                        "part": part,
                        "baseline": block.block.baseline,
                        **_metric(rows[name], comparison),
                        **(_ABSENT | _figure(figure)),
                        "verdict": None,
                    }
