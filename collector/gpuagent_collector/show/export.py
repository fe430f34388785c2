"""Everything about a run or a side, in every format."""

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

from rich.console import Console

from gpuagent_collector.compare import export as comparing
from gpuagent_collector.compare.page import answer_section, detail_sections, part_sections, print_courses
from gpuagent_collector.output.document import Grid, Paragraph, Section, caveat_sections
from gpuagent_collector.output.human import duration
from gpuagent_collector.output.rendering import Rendering
from gpuagent_collector.output.sections import is_wide, print_sections
from gpuagent_collector.profile import export as profiling
from gpuagent_collector.runs.series import Course
from gpuagent_collector.show.details import details_section, output_section, record, results_section
from gpuagent_collector.show.links import links_sections
from gpuagent_collector.show.stacks import stacks_section
from gpuagent_collector.show.study import Showing
from gpuagent_common.text import counted

# Operations of a table, and lines of a stream.
_TOP = 10
_LINES = 15
# Of more settings than these only the largest are detailed without --all.
_MOST_BLOCKS = 6


def render(showing: Showing) -> Rendering:
    """Return the forms of the answer: CSV has a line for each metric of each setting."""
    of_comparison = comparing.render(showing.comparison)
    return Rendering(
        sections=lambda: [*_before_curves(showing, wide=True), *_after_curves(showing)],
        record=partial(_record, showing),
        lines=of_comparison.lines,
        show=partial(_print, showing),
    )


def _print(showing: Showing, console: Console) -> None:
    print_sections(console, _before_curves(showing, wide=is_wide(console)))
    print_courses(console, showing.comparison)
    print_sections(console, _after_curves(showing))


def _before_curves(showing: Showing, *, wide: bool) -> Iterator[Section]:
    comparison = showing.comparison
    if showing.details:
        yield details_section(showing.details)
    if not showing.details:
        yield answer_section(comparison)
    if comparison.specs:
        yield from detail_sections(comparison, wide=wide, most=None if comparison.request.everything else _MOST_BLOCKS)
    yield from part_sections(comparison)
    if showing.stacks:
        yield stacks_section(showing.stacks)
    yield from links_sections(showing.points)
    courses = [course for course in comparison.courses if course.phases]
    if courses:
        yield phases_section(courses[0])


def phases_section(course: Course) -> Section:
    """Return the phases of a run: when each began, from the measured phase's begin, and how long it lasted."""
    rows = tuple(
        (phase.name, f"{phase.from_seconds:.1f} s".replace("-", "−"), duration(phase.to_seconds - phase.from_seconds))
        for phase in course.phases
    )
    heading = f"Phases of {course.run.run_id}"
    return Section(heading=heading, parts=(Grid(header=("phase", "from", "took"), rows=rows),))


def _after_curves(showing: Showing) -> Iterator[Section]:
    if showing.profile:
        first, *rest = profiling.build_document(showing.profile, top=_TOP)
        yield Section(heading=f"Kernels: {first.heading}", parts=first.parts[:1])
        yield from (section for section in rest if section.heading != "Warnings")
    if showing.details:
        yield from (
            section
            for section in (results_section(showing.details), output_section(showing.details, _LINES))
            if section
        )
    yield from caveat_sections(showing.comparison.caveats)
    statements = counted(len(showing.statements), "statement")
    text = f"--show-sql prints the {statements} of this answer; --json has everything."
    yield Section(heading="SQL", parts=(Paragraph(text=text),))


def _record(showing: Showing) -> dict[str, Any]:
    return {
        **comparing.render(showing.comparison).record(),
        "run": record(showing.details) if showing.details else None,
        "courses": [
            {
                "course": course.side,
                "run_id": course.run.run_id,
                "phases": [asdict(phase) for phase in course.phases],
                "curves": [
                    {
                        "title": chart.title,
                        "unit": chart.unit,
                        "points": [[reading.seconds, reading.mean] for stretch in curve for reading in stretch],
                    }
                    for chart, curve in course.curves.items()
                ],
            }
            for course in showing.comparison.courses
        ],
        "profile": profiling.render(showing.profile, top=_TOP).record() if showing.profile else None,
        "stacks": [asdict(stack) for stack in showing.stacks],
        "collectives": [asdict(point) for point in showing.points],
        "sql": showing.statements,
    }
