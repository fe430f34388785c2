"""Commands and queries that give the same figures again, and others of the same runs."""

import shlex
from collections.abc import Container, Iterator, Sequence
from itertools import chain

from markupsafe import Markup

from gpuagent_collector import __version__
from gpuagent_collector.compare.comparison import Request
from gpuagent_collector.json_cells import read_words
from gpuagent_collector.metrics.result import SERVING
from gpuagent_collector.output.document import Grid
from gpuagent_collector.output.human import significant
from gpuagent_collector.output.values import ABSENT
from gpuagent_collector.report.pieces import code, folded, heading, prose, table
from gpuagent_collector.report.study import Missing, Report
from gpuagent_common.text import counted, harmless

_USUAL = Request()


def commands(report: Report) -> Iterator[str]:
    """Yield the commands as a shell takes them, those first that print the same."""
    request, layout = report.comparison.request, report.comparison.layout
    asked = [*request.values, *_options(request)]
    workload, by = layout.blocks[0].workload, ["--by", request.by]
    yield _line("report", "report.html", *asked)
    yield _line("compare", *asked)
    if workload != SERVING:
        yield _line("recommend", workload, *by, *_options(request, ("--experiment", "--where", "--prices")))
    if not isinstance(report.roofline, Missing):
        yield _line("roofline", *_distinct(block.workload for block in layout.blocks), *by)
    if not isinstance(report.profiles, Missing):
        for profile in chain.from_iterable(report.profiles):
            yield _line("profile", *(side.run.run_id for side in profile.sides))
    if not isinstance(report.scaling, Missing):
        for name in _distinct(curve.curve.settings.workload for curve in report.scaling.curves):
            yield _line("scaling", name)
    if report.serving:
        yield _line("serving", *by, *_options(request, ("--experiment", "--where", "--prices")))


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
        "--each": request.each.value if request.each else None,
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


def write(report: Report) -> Iterator[Markup]:
    """Yield the commands, what the runs were started with, and every statement that the store was asked."""
    yield prose("These commands show the same, and more of it:")
    yield code("\n".join(commands(report)), "Commands")
    origin = report.origin
    times = [ABSENT if time is None else f"{time:%Y-%m-%d %H:%M:%S} UTC" for time in (origin.from_time, origin.to_time)]
    rows = (
        ("Read", report.source),
        ("Runs between", " and ".join(times)),
        *((f"Runs of {side}", _list_runs(run_ids)) for side, run_ids in origin.run_ids.items()),
        ("Collector", f"gpuagent {__version__}"),
        ("Agents", f"gpuagent {', '.join(origin.agents)}" if origin.agents else ABSENT),
        ("Written", f"{report.written_at:%Y-%m-%d %H:%M:%S} UTC"),
    )
    yield table(Grid(header=("", "what"), rows=rows, figures_from=2), "What this report was made of")
    started = report.origin.commands
    if started:
        lines = [
            f"# {harmless(side)}, {counted(number, 'run')}\n{_command_line(command)}"
            for (side, command), number in started.items()
        ]
        yield folded(
            f"What was started: {counted(len(started), 'command')}", code("\n".join(lines), "Commands of the runs")
        )
    yield heading("Queries")
    rest = ", of curves those of the first workload or setting" if len(report.courses) > 1 else ""
    yield prose(f"All that the store was asked for this report{rest}; `collector query sql` takes each of them.")
    shown: set[str] = set()
    for topic, statements in report.statements.items():
        # The same runs are asked about for several topics, and their names are long.
        fresh = [statement for statement in dict.fromkeys(statements) if statement not in shown]
        shown.update(fresh)
        above = f", {len(statements) - len(fresh)} of them above" if len(fresh) < len(statements) else ""
        heading_of = f"{topic}: {counted(len(statements), 'statement')}{above}"
        yield folded(heading_of, code("\n\n".join(fresh), f"SQL of {topic}"), class_="sql")


_LISTED = 10


def _list_runs(run_ids: Sequence[str]) -> str:
    shown = ", ".join(run_ids[:_LISTED])
    return shown if len(run_ids) <= _LISTED else f"{shown}, … ({len(run_ids)} in all)"


def _command_line(command: str) -> str:
    return harmless(shlex.join(read_words(command)))
