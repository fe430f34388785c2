"""Chapters for which the store has no data, and how to get it."""

from collections.abc import Iterator

from markupsafe import Markup

from gpuagent_collector.prices.price import currencies_of
from gpuagent_collector.report.pieces import bullet_list
from gpuagent_collector.report.study import Missing, Report


def write(report: Report) -> Iterator[Markup]:
    """Yield a line for each chapter that is not there, and for parts of others."""
    lines = [f"{title}: {reason}." for title, reason in _reasons(report)]
    if lines:
        yield bullet_list(lines)


def _reasons(report: Report) -> Iterator[tuple[str, str]]:
    if not any(course.curves for courses in report.courses for course in courses):
        yield "Over time", "no samples of the median runs; an agent on their nodes takes them (`gpuagent start`)"
    if not any(report.step_times):
        yield (
            "Times of steps",
            "no run reported steps; built-in workloads do, docs/run-directory.md says how others can",
        )
    for title, part in (
        ("Roofline", report.roofline),
        ("Kernels and operators", report.profiles),
        ("Scaling", report.scaling),
    ):
        if isinstance(part, Missing):
            yield title, part.reason
    if not currencies_of(report.comparison.facts.derived):
        yield "Cost", _no_cost(report)


def _no_cost(report: Report) -> str:
    prices = report.comparison.request.prices
    if prices is None:
        return "no prices were given; name a file of them with `--prices` (docs/cost.md says what is in it)"
    return f"{prices.source} has no prices of these nodes"
