"""Commands and queries that give the same figures again, and others of the same runs."""

import json
import shlex
from collections.abc import Iterator, Sequence

from markupsafe import Markup

from gpuagent_collector import __version__
from gpuagent_collector.output.document import Grid
from gpuagent_collector.output.human import counted
from gpuagent_collector.output.values import ABSENT
from gpuagent_collector.report.commands import commands
from gpuagent_collector.report.pieces import code, folded, heading, prose, table
from gpuagent_collector.report.study import Report
from gpuagent_common.text import harmless


def write(report: Report) -> Iterator[Markup]:
    """Yield the commands, what the runs were started with, and every statement that the store was asked."""
    yield prose("These commands show the same, and more of it:")
    yield code("\n".join(commands(report)), "Commands")
    yield table(_facts(report), "What this report was made of")
    yield from _started(report)
    yield heading("Queries")
    yield prose("All that the store was asked for this report; `collector query sql` takes each of them.")
    for topic, statements in report.statements.items():
        number = counted(len(statements), "statement")
        yield folded(f"{topic}: {number}", code("\n\n".join(statements), f"SQL of {topic}"), class_="sql")


def _facts(report: Report) -> Grid:
    origin = report.origin
    times = [ABSENT if time is None else f"{time:%Y-%m-%d %H:%M:%S} UTC" for time in (origin.from_time, origin.to_time)]
    rows = (
        ("Read", report.source),
        ("Runs between", " and ".join(times)),
        *((f"Runs of {side}", _listed(run_ids)) for side, run_ids in origin.run_ids.items()),
        ("Collector", f"gpuagent {__version__}"),
        ("Agents", f"gpuagent {', '.join(origin.agents)}" if origin.agents else ABSENT),
        ("Written", f"{report.written_at:%Y-%m-%d %H:%M:%S} UTC"),
    )
    return Grid(header=("", "what"), rows=rows, figures_from=2)


_LISTED = 10


def _listed(run_ids: Sequence[str]) -> str:
    shown = ", ".join(run_ids[:_LISTED])
    return shown if len(run_ids) <= _LISTED else f"{shown}, … ({len(run_ids)} in all)"


def _started(report: Report) -> Iterator[Markup]:
    """Yield the programs that the agents started, secrets taken out."""
    started = report.origin.commands
    if started:
        lines = [
            f"# {harmless(side)}, {number} runs\n{_joined(command)}" for (side, command), number in started.items()
        ]
        yield folded(f"What was started: {len(started)} commands", code("\n".join(lines), "Commands of the runs"))


def _joined(command: str) -> str:
    return harmless(shlex.join(map(str, json.loads(command))))
