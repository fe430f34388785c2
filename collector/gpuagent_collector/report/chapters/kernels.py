"""The operators and kernels that took the time of a step."""

from collections.abc import Iterator

from markupsafe import Markup

from gpuagent_collector.profile.export import build_document
from gpuagent_collector.report.figures.kernels import kernels_figure
from gpuagent_collector.report.pieces import charts, document, folded, heading, piece
from gpuagent_collector.report.study import Missing, Report

_TOP = 15
_MOST_CHARTS = 2


def write(report: Report) -> Iterator[Markup]:
    """Yield for each two sides what `collector profile` says, a chart of what took longest, and the tables folded."""
    if isinstance(report.profiles, Missing):
        return
    for study in report.profiles:
        first, *rest = build_document(study, top=_TOP)
        yield heading(first.heading)
        yield piece(first.parts[0], first.heading)
        yield charts(
            kernels_figure(table, study, report.comparison.layout.sides) for table in study.tables[:_MOST_CHARTS]
        )
        for part in first.parts[1:]:
            yield piece(part, "The runs that were traced")
        for section in rest:
            if section.heading == "Warnings":
                yield from document([section], level=4)
            else:
                yield folded(section.heading, *(piece(part, section.heading) for part in section.parts))
