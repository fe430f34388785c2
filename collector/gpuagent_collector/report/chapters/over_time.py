"""The median run of each side over time."""

from collections.abc import Iterator

from markupsafe import Markup

from gpuagent_collector.report.figures.over_time import course_figures, phases_figure
from gpuagent_collector.report.pieces import chart, charts, legend, prose
from gpuagent_collector.report.study import MOST_SIDES, Report
from gpuagent_collector.runs.cells import tell_apart


def write(report: Report) -> Iterator[Markup]:
    """Yield the phases, and a chart for each quantity that was read."""
    layout = report.comparison.layout
    # A part has a colour of its own, after those of the sides.
    shown = [course for course in report.courses if course.curves or course.phases]
    named = [*layout.sides, *(course.side for course in shown if course.side not in layout.sides)]
    courses = {named.index(course.side): course for course in shown}
    figures = list(course_figures(courses))
    if not figures:
        return
    is_measured = any(phase.name == "measure" for course in report.courses for phase in course.phases)
    zero, shaded = (
        ("where its measured phase began", "; shaded is what was measured") if is_measured else ("its start", "")
    )
    yield prose(
        f"The median run of each side, by {report.comparison.figures.primary.title.lower()}, of "
        f"{tell_apart(layout.blocks[0], layout.blocks)}. 0 s is {zero}. Lines are means over "
        f"the run's nodes or GPUs, areas what they vary between{shaded}. Drag to zoom all charts, "
        "double-click to see all again."
    )
    if len(layout.blocks[0].cells) > MOST_SIDES:
        yield prose(f"The first {MOST_SIDES} sides.", class_="quiet")
    names = {
        course.side: course.side if course.run.run_id in course.side else f"{course.side}, {course.run.run_id}"
        for course in courses.values()
    }
    yield legend(names, named)
    phases = phases_figure(courses)
    if phases:
        yield chart(phases)
    yield charts(figures)
