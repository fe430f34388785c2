"""The metrics that matter most, of all workloads and sides in one table."""

from collections.abc import Iterator

from markupsafe import Markup

from gpuagent_collector.compare.matrix import matrix_grid
from gpuagent_collector.report.pieces import prose, table
from gpuagent_collector.report.study import Missing, Report


def write(report: Report) -> Iterator[Markup]:
    """Yield the table; nothing for a single run, whose metrics follow."""
    if report.details or isinstance(report.matrix, Missing):
        return
    yield table(matrix_grid(report.matrix), "Workloads by side")
    yield prose("Medians over runs [lowest, highest] (runs).", class_="quiet")
