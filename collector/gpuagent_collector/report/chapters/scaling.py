"""The growth of throughput with the number of ranks."""

from collections.abc import Iterator

from markupsafe import Markup

from gpuagent_collector.answers.scaling import build_document, find_caveats
from gpuagent_collector.report.figures.scaling import scaling_figure
from gpuagent_collector.report.pieces import chart, document, piece
from gpuagent_collector.report.study import Missing, Report


def write(report: Report) -> Iterator[Markup]:
    """Yield what `collector scaling` says, with a chart of all curves."""
    study = report.scaling
    if isinstance(study, Missing):
        return
    first, *rest = build_document(study, find_caveats(study), wide=True)
    for part in first.parts:
        yield piece(part, first.heading)
    yield chart(scaling_figure(study))
    yield from document(rest, level=3)
