"""The nodes, GPUs and software of each side."""

from collections.abc import Iterator

from markupsafe import Markup

from gpuagent_collector.report.pieces import prose, table
from gpuagent_collector.report.study import Report
from gpuagent_collector.runs.specs import spec_table


def write(report: Report) -> Iterator[Markup]:
    """Yield the specifications of all sides, those in which they differ marked."""
    sides, specs = report.comparison.layout.sides, report.comparison.specs
    differing = sum(row.differs for row in specs)
    if len(sides) > 1:
        yield prose(f"≠ marks the {differing} in which the sides differ." if differing else "The same on all sides.")
    yield table(spec_table(sides, specs), "Nodes, GPUs and software of each side")
