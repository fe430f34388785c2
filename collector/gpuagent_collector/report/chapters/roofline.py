"""The rates that runs reach, below those that their device can reach."""

from collections.abc import Iterator

from markupsafe import Markup

from gpuagent_collector.answers.roofline import head, points, roofs, warnings
from gpuagent_collector.report.figures.rooflines import roofline_figure
from gpuagent_collector.report.pieces import chart, document, piece
from gpuagent_collector.report.study import Missing, Report


def write(report: Report) -> Iterator[Markup]:
    """Yield the answer of `collector roofline`, and for each device the roofs, a chart and tables."""
    study = report.roofline
    if isinstance(study, Missing):
        return
    for part in head(study).parts:
        yield piece(part, "Roofline")
    for roofline in study.rooflines:
        yield from document([roofs(roofline)], level=3)
        figure = roofline_figure(roofline, study, report.comparison.layout.sides)
        if figure:
            yield chart(figure)
        for part in points(roofline, study).parts:
            yield piece(part, f"What runs reach on {roofline.device}")
    yield from document(list(warnings(study)), level=3)
