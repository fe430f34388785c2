"""A report from what was asked to HTML, for the command line and for the collector's web page."""

from gpuagent_collector.compare.comparison import Request
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.report.page import render
from gpuagent_collector.report.study import make_report
from gpuagent_collector.times import utc_now


def render_report(ask: Ask, request: Request, *, source: str) -> str:
    """Return the page of a request; `source` names the store for people.

    Raises:
        MisuseError: a facet, value, workload, experiment or metric is unknown.
        GpuAgentError: there is nothing to compare.
    """
    return render(make_report(ask, request, source=source, now=utc_now()))
