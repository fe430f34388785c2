"""The operators and kernels that took the time of a step."""

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from gpuagent_collector.answers.profile import Study, build_document
from gpuagent_collector.report.figures.kernels import kernels_figure
from gpuagent_collector.report.pieces import anchor_of, charts, document, folded, heading, piece
from gpuagent_collector.report.study import Missing, Report
from gpuagent_collector.runs.cells import tell_apart

_TOP = 15
_MOST_CHARTS = 2


def write(report: Report) -> Iterator[Markup]:
    """Yield for each two sides what `collector profile` says, a chart of what took longest, and the tables folded."""
    if isinstance(report.profiles, Missing):
        return
    layout = report.comparison.layout
    with_traces = [(number, studies) for number, studies in enumerate(report.profiles) if studies]
    for number, studies in with_traces:
        name, anchor = tell_apart(layout.blocks[number], layout.blocks), anchor_of("kernels", number)
        pieces = [one for study in studies for one in _study(study, layout.sides)]
        if number == with_traces[0][0]:
            if len(layout.blocks) > 1:
                yield heading(name, anchor=anchor)
            yield from pieces
        else:
            yield folded(name, *pieces, anchor=anchor)


def _study(study: Study, sides: Sequence[str]) -> Iterator[Markup]:
    first, *rest = build_document(study, top=_TOP)
    yield heading(first.heading, 4)
    yield piece(first.parts[0], first.heading)
    yield charts(kernels_figure(table, study, sides) for table in study.tables[:_MOST_CHARTS])
    for part in first.parts[1:]:
        yield piece(part, "The runs that were traced")
    for section in rest:
        if section.heading == "Warnings":
            yield from document([section], level=4)
        else:
            yield folded(section.heading, *(piece(part, section.heading) for part in section.parts))
