"""Servers of language models under load."""

from collections.abc import Iterator

from markupsafe import Markup

from gpuagent_collector.answers.serving import build_document, find_caveats
from gpuagent_collector.report.figures.serving import serving_figure
from gpuagent_collector.report.pieces import chart, document, piece
from gpuagent_collector.report.study import Report


def write(report: Report) -> Iterator[Markup]:
    """Yield what `collector serving` says, with a chart of all curves."""
    study = report.serving
    if study is None:
        return
    first, *rest = build_document(study, find_caveats(study))
    for part in first.parts:
        yield piece(part, first.heading)
    yield chart(serving_figure(study))
    yield from document(rest, level=3)
