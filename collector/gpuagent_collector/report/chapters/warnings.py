"""Warnings to read before acting on the comparison."""

from collections.abc import Iterator

from markupsafe import Markup

from gpuagent_collector.output.document import Bullets
from gpuagent_collector.report.pieces import prose, warnings
from gpuagent_collector.report.study import Report


def write(report: Report) -> Iterator[Markup]:
    """Yield every warning with what to do about it."""
    caveats = report.comparison.caveats
    if not caveats:
        yield prose("None: nothing in the data speaks against acting on it.")
        return
    yield warnings(Bullets(points=tuple((caveat.text, caveat.remedy) for caveat in caveats)))
