"""The only run of a report: its request, its end and its output."""

from collections.abc import Iterator

from markupsafe import Markup

from gpuagent_collector.answers.show import details_section, output_section
from gpuagent_collector.report.pieces import piece
from gpuagent_collector.report.study import Report

_LINES = 200


def write(report: Report) -> Iterator[Markup]:
    """Yield the run as a table; nothing of several runs."""
    if report.details:
        section = details_section(report.details)
        for part in section.parts:
            yield piece(part, section.heading)


def write_output(report: Report) -> Iterator[Markup]:
    """Yield the last lines of each stream that the store has."""
    section = output_section(report.details, _LINES) if report.details else None
    for part in section.parts if section else ():
        yield piece(part, "Output")
