"""The answer of an experiment, by the collector: its commands, and whether its intervals are narrow enough to stop."""

import json
import math
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from gpuagent.cli.collector_command import connection_words, find_collector_command
from gpuagent_common.connection import READ_LATER_VARIABLE
from gpuagent_common.errors import MisuseError
from gpuagent_common.waiting import waiting_for

if TYPE_CHECKING:
    from gpuagent.agent_config import AgentConfig
    from gpuagent.experiment.file import Experiment

# The last samples may take this long to reach the collector; then the answer is printed without them.
_DELIVERED_SECONDS = 20.0

# The figures of the last runs are left out of the answer if they take longer to compute.
_FIGURES_SECONDS = 20.0
_FIGURES = """
WITH ended AS (
    SELECT *, run_id IN (SELECT run_id FROM metrics WHERE metric = 'throughput') AS has_throughput
    FROM runs WHERE experiment = '{1}' AND ended_at IS NOT NULL),
sides AS (
    SELECT 2 * count(*) FILTER (has_throughput) <= count(*) AS is_lacking FROM ended WHERE status = 'succeeded'
    GROUP BY command::VARCHAR, parameters::VARCHAR, environment, interference, limits)
SELECT count(*) FILTER (started_at IS NOT NULL AND run_id NOT IN (SELECT run_id FROM metrics))
    + greatest(0, {0} - count(*)) AS without_figures,
    (SELECT count(*) FILTER (is_lacking) FROM sides) AS lacking, (SELECT count(*) FROM sides) AS sides,
    count(DISTINCT platform) FILTER (status = 'succeeded') AS platforms
FROM ended"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """State of the runs of an experiment in the collector."""

    is_answered: bool
    # Of all runs that ended, and of as many as were made if that is known.
    has_figures: bool = False
    # The sides of which at least half of the succeeded runs have no throughput, and all sides.
    lacking: int = 0
    sides: int = 0
    # The platforms with a run that succeeded.
    platforms: int = 0


def check_answer(words: Sequence[str]) -> None:
    """Check the commands of an answer, by `collector` with these words, where that is installed.

    Raises MisuseError: one has an option, facet or metric that does not exist, or the folder cannot be made.
    """
    program = find_collector_command()
    if program and words:
        done = subprocess.run([program, *words, "--check"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise MisuseError(done.stderr.strip().removeprefix("collector: "))


def print_answer(
    words: Sequence[str], experiment: "Experiment", config: "AgentConfig", store: str | None, *, is_stored: bool
) -> None:
    """Print and write the answer of an experiment; if that is impossible now, print the command for later.

    Where its file has no answer, print the command that shows its runs. Of a `store`, the collector ends with this
    command, so the printed commands read its file.
    """
    later = ["--store", store] if store else connection_words(config)
    if not words:
        return _print_next(experiment, later)
    program = find_collector_command()
    if program is None:
        reason = "there is no `collector` here; run this where it is"
    elif not is_stored:
        reason = "when the collector has the samples, run this"
    else:
        awaited = await_figures(program, experiment.name, connection_words(config))
        env = {**os.environ, **({READ_LATER_VARIABLE: shlex.join(later)} if store else {})}
        command = [program, *words, *connection_words(config)]
        if awaited.is_answered and subprocess.run(command, env=env, check=False).returncode == 0:
            return None
        are_platforms = any("--by" not in answer or "--by platform" in answer for answer in experiment.answers)
        is_first = are_platforms and awaited.platforms == 1
        reason = "when another platform has run it as well, run this" if is_first else "once that is fixed, run this"
    return click.echo(f"gpuagent: {reason}:\n  collector {shlex.join([*words, *later])}", err=True)


def _print_next(experiment: "Experiment", connection: Sequence[str]) -> None:
    """Print the command that shows the runs of an experiment whose file has no answer."""
    loads = [cell.asked.parameters for cell in experiment.cells if cell.asked.workload == "serve-load"]
    words = ["serving", "--experiment", experiment.name] if loads else ["show", experiment.name]
    if len({parameters.get("server") for parameters in loads}) > 1:
        words += ["--by", "parameter:server"]
    click.echo(f"Next:\n  collector {shlex.join([*words, *connection])}")


def await_figures(program: str, experiment: str, connection: Sequence[str], *, made: int = 0) -> Awaited:
    """Wait for the figures of all ended runs, of so many that were `made` at least; return what the collector has.

    If it does not answer, its command prints why.
    """
    sql = _FIGURES.format(made, experiment.replace("'", "''"))
    words = [program, "query", "sql", sql, "--format", "csv"]
    deadline = time.monotonic() + _FIGURES_SECONDS
    with waiting_for("gpuagent", "the collector to compute the figures of the runs"):
        while True:
            asked = subprocess.run([*words, *connection], capture_output=True, text=True, check=False)
            if asked.returncode:
                click.echo(asked.stderr, nl=False, err=True)
                return Awaited(is_answered=False)
            without_figures, lacking, sides, platforms = map(int, asked.stdout.split()[-1].split(","))
            if without_figures == 0 or time.monotonic() > deadline:
                counts = {"lacking": lacking, "sides": sides, "platforms": platforms}
                return Awaited(is_answered=True, has_figures=without_figures == 0, **counts)


def await_delivery(is_waiting: Callable[[], object]) -> None:
    """Wait a while for the collector to have what `is_waiting` says that it lacks."""
    deadline = time.monotonic() + _DELIVERED_SECONDS
    with waiting_for("gpuagent", "the collector to take the last messages"):
        while is_waiting() and time.monotonic() < deadline:
            time.sleep(0.1)


def is_narrow(experiment: "Experiment", config: "AgentConfig", is_waiting: Callable[[], object], *, made: int) -> bool:
    """Return whether every tested interval of the first comparison of the answer is narrow enough.

    Without an answer of the collector it is not: the experiment goes on, which no error rate minds.
    """
    program, connection = find_collector_command(), connection_words(config)
    await_delivery(is_waiting)
    if program is None or not await_figures(program, experiment.name, connection, made=made).has_figures:
        return False
    first = next(answer for answer in experiment.answers if answer.startswith("compare"))
    words = [program, *shlex.split(first), "--experiment", experiment.name, "--format", "json", *connection]
    if not any(word.partition("=")[0] == "--metric" for word in words) and experiment.metric != "throughput":
        words += ["--metric", experiment.metric]
    asked = subprocess.run(words, capture_output=True, text=True, check=False)
    tests = json.loads(asked.stdout)["tests"] if asked.returncode == 0 else []
    widths = [
        100 * (test["high"] / test["low"] - 1)
        if test["scale"] == "ratio" and test["low"] and test["high"]
        else math.inf
        for test in tests
    ]
    return bool(widths) and max(widths) <= (experiment.until or 0)
