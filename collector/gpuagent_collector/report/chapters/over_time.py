"""The median run of each side over time."""

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from gpuagent_collector.report.figures.over_time import course_figures, phases_figure
from gpuagent_collector.report.pieces import anchor_of, chart, charts, folded, heading, largest, legend, prose
from gpuagent_collector.report.study import MOST_BLOCKS, MOST_SIDES, Report
from gpuagent_collector.runs.cells import Layout, tell_apart
from gpuagent_collector.runs.series import Course


def write(report: Report) -> Iterator[Markup]:
    """Yield the phases, and a chart for each quantity that was read."""
    layout = report.comparison.layout
    blocks = layout.blocks
    found = [(number, list(_block(courses, layout))) for number, courses in enumerate(report.courses)]
    drawn = [(number, pieces) for number, pieces in found if pieces]
    if not drawn:
        return
    every = [course for courses in report.courses for course in courses]
    is_measured = any(phase.name == "measure" for course in every for phase in course.phases)
    zero, shaded = (
        ("where its measured phase began", "; shaded is what was measured") if is_measured else ("its start", "")
    )
    yield prose(
        f"The median run of each side, by {report.comparison.figures.primary.title.lower()}. 0 s is {zero}. Lines are "
        f"means over the run's nodes or GPUs, areas what they vary between{shaded}. Drag to zoom all charts of a "
        "workload, double-click to see all again."
    )
    if any(len(block.cells) > MOST_SIDES for block in blocks):
        yield prose(f"The first {MOST_SIDES} sides.", class_="quiet")
    for number, pieces in drawn:
        name, anchor = tell_apart(blocks[number], blocks), anchor_of("over-time", number)
        if number == drawn[0][0]:
            if len(blocks) > 1:
                yield heading(name, anchor=anchor)
            yield from pieces
        else:
            yield folded(name, *pieces, anchor=anchor)
    yield largest(MOST_BLOCKS, len(blocks))


def _block(of_block: Sequence[Course], layout: Layout) -> Iterator[Markup]:
    """Yield a legend, the phases and the charts of a block; nothing without curves."""
    # A part has a colour of its own, after those of the sides.
    shown = [course for course in of_block if course.curves or course.phases]
    named = [*layout.sides, *(course.side for course in shown if course.side not in layout.sides)]
    courses = {named.index(course.side): course for course in shown}
    figures = list(course_figures(courses))
    if not figures:
        return
    names = {
        course.side: course.side if course.run.run_id in course.side else f"{course.side}, {course.run.run_id}"
        for course in courses.values()
    }
    yield legend(names, named)
    phases = phases_figure(courses)
    if phases:
        yield chart(phases)
    yield charts(figures)
