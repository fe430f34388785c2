"""The commands that show what a report shows."""

import shlex
from collections.abc import Container, Iterator

from gpuagent_collector.compare.comparison import Request
from gpuagent_collector.output.human import significant
from gpuagent_collector.report.study import Missing, Report
from gpuagent_common.text import harmless

_USUAL = Request()


def commands(report: Report) -> Iterator[str]:
    """Yield the commands as a shell takes them, those first that print the same."""
    request, layout = report.comparison.request, report.comparison.layout
    asked = [*request.values, *_options(request)]
    workload, by = layout.blocks[0].workload, ["--by", request.by]
    yield _line("report", "report.html", *asked)
    yield _line("compare", *asked)
    yield _line("recommend", workload, *by, *_options(request, ("--experiment", "--where", "--prices")))
    if not isinstance(report.roofline, Missing):
        yield _line("roofline", *_distinct(block.workload for block in layout.blocks), *by)
    if not isinstance(report.profiles, Missing):
        for profile in report.profiles:
            yield _line("profile", *(side.run.run_id for side in profile.sides))
    if not isinstance(report.scaling, Missing):
        for name in _distinct(curve.curve.settings.workload for curve in report.scaling.curves):
            yield _line("scaling", name)


def _options(request: Request, names: Container[str] | None = None) -> Iterator[str]:
    """Yield the options that were given, of these names; None: all."""
    given = {
        "--by": request.by if request.by != _USUAL.by else None,
        "--baseline": request.baseline,
        "--workload": request.workload,
        "--experiment": request.experiment,
        "--where": request.where,
        "--metric": request.metric,
        "--stat": request.stat.value if request.stat else None,
        "--delta": significant(100 * request.delta) if request.delta != _USUAL.delta else None,
        "--prices": request.prices.source if request.prices else None,
    }
    for option, value in given.items():
        if value is not None and (names is None or option in names):
            yield from (option, value)


def _distinct(names: Iterator[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _line(command: str, *words: str) -> str:
    return harmless(shlex.join(["collector", command, *words]))
