"""`gpuagent experiment`: many runs that answer one question, from a file."""

import shlex
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuagent.cli.collector_command import connection_words, find_collector_command
from gpuagent.cli.node_agent import given_to_agent, node_agent
from gpuagent.cli.options import agent_config, agent_options
from gpuagent_common.cli import interrupt_on_signals
from gpuagent_common.errors import MisuseError
from gpuagent_common.text import counted

if TYPE_CHECKING:
    from gpuagent.agent_config import AgentConfig
    from gpuagent.experiment.conduct import Journal
    from gpuagent.experiment.file import Experiment
    from gpuagent.experiment.plan import Trial
    from gpuagent_proto.v1.run_pb2 import RunUpdate

# The last samples may take this long to reach the collector; then the answer is printed without them.
_DELIVERED_SECONDS = 20.0

# The figures of the last runs are left out of the answer if they take longer to compute.
_FIGURES_SECONDS = 20.0
_WITHOUT_FIGURES = """
SELECT count(*) FROM runs WHERE experiment = '{}' AND started_at IS NOT NULL AND ended_at IS NOT NULL
AND run_id NOT IN (SELECT run_id FROM metrics)"""


@click.group()
def command() -> None:
    """Run an experiment from a file."""


@command.command(
    epilog="""\b
Examples:
  gpuagent experiment run study.yaml --dry-run
  gpuagent experiment run study.yaml --platform satori
  gpuagent experiment run study.yaml --only environment=bare --name bare-only"""
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--dry-run", is_flag=True, help="Print every command and the expected time; run nothing.")
@click.option("--only", metavar="K=V", multiple=True, help="Only cells of this environment or workload; repeatable.")
@click.option("--name", metavar="NAME", help="Another name for the experiment.")
@click.option("--repeats", metavar="N", type=click.IntRange(1), help="Another number of repeats.")
@click.option("--force", is_flag=True, help="Start even if the GPUs are busy or torch cannot use them.")
@agent_options
@click.pass_context
def run(
    ctx: click.Context,
    /,
    file: Path,
    dry_run: bool,
    only: tuple[str, ...],
    name: str | None,
    repeats: int | None,
    force: bool,
    **options: Any,
) -> int:
    """Make the runs of an experiment and print its answer.

    FILE is YAML, or the name of a study from `gpuagent experiment list`; `gpuagent experiment schema` prints its
    fields. After an interruption the same command resumes; a run that has ended is never repeated.
    """
    from gpuagent.agent_config import find_place
    from gpuagent.experiment import plan
    from gpuagent.experiment.conduct import Journal, check_cells
    from gpuagent.experiment.file import find_file, read_experiment
    from gpuagent.locations import lock
    from gpuagent.runs.catalogue import Catalogue
    from gpuagent.runs.planning import Planner

    experiment = plan.narrowed(read_experiment(find_file(file)), only, name=name, repeats=repeats)
    config = agent_config(options, allow_commands=True)
    check_cells(experiment, Planner(Catalogue(config.python), allow_commands=True).plan)
    _check_answers(experiment)
    path = find_place(config)[0] / "experiments" / f"{experiment.name}.jsonl"
    if dry_run:
        _print_plan(experiment, Journal(path, plan.fingerprint(experiment)))
        return 0
    interrupt_on_signals()
    path.parent.mkdir(parents=True, exist_ok=True)
    with lock(path.with_suffix(".lock"), held=f"another command makes the runs of {experiment.name} here"):
        journal = Journal(path, plan.fingerprint(experiment))
        is_stored = _conduct(experiment, journal, config, given_to_agent(ctx), force=force)
    _answer(experiment, config, is_stored=is_stored)
    has_failed = any(done.status != "succeeded" for done in journal.done)
    return int(has_failed or bool(journal.left(plan.all_trials(experiment))))


@command.command()
def schema() -> None:
    """Print the JSON Schema of experiment files."""
    from gpuagent.experiment.file import SCHEMA

    click.echo(SCHEMA.read_text(), nl=False)


@command.command("list")
def list_studies() -> None:
    """List the studies that come with gpuagent."""
    from gpuagent.experiment.file import read_experiment, studies

    for path in studies():
        click.echo(f"{path.stem:<12} {read_experiment(path).question or ''}")


def _print_plan(experiment: "Experiment", journal: "Journal") -> None:
    from gpuagent.experiment import plan

    left = journal.left(plan.all_trials(experiment))
    for trial in left:
        click.echo(shlex.join(plan.command_line(trial, experiment)))
    seconds = journal.expected_seconds(left)
    expected = f"about {_duration(seconds)}, going by earlier runs" if seconds else "no earlier run to estimate from"
    click.echo(f"gpuagent: {counted(len(left), 'run')} left of {len(left) + len(journal.done)}; {expected}", err=True)


def _conduct(
    experiment: "Experiment", journal: "Journal", config: "AgentConfig", given: Sequence[str], *, force: bool
) -> bool:
    """Make the runs that are left; return whether the collector has the samples of an agent of our own."""
    from gpuagent.experiment import plan
    from gpuagent.experiment.conduct import Conductor, check_concerns, torch_concerns
    from gpuagent.experiment.gpus import NodeGpus

    every = plan.all_trials(experiment)
    left = journal.left(every)
    if not left:
        click.echo(f"gpuagent: all {len(every)} runs of {experiment.name} have been made", err=True)
        return True
    gpus = NodeGpus()
    check_concerns((*gpus.occupants(), *torch_concerns(experiment, config.python, gpus)), force=force)
    with node_agent(config, given, plan.spec(left[0], experiment, str(Path.cwd()))) as agent:
        conductor = Conductor(
            experiment=experiment,
            journal=journal,
            gpus=gpus,
            submit=agent.submit,
            observer=_Lines(journal, every),
            working_directory=str(Path.cwd()),
        )
        try:
            conductor.run()
        except KeyboardInterrupt:
            made = len(journal.done)
            click.echo(f"gpuagent: {made} of {len(every)} runs are made; the same command resumes", err=True)
            raise
        deadline = time.monotonic() + _DELIVERED_SECONDS
        while agent.waiting() and time.monotonic() < deadline:
            time.sleep(0.1)
    return not agent.left_behind()


def _answers(experiment: "Experiment") -> list[list[str]]:
    """Return the commands of `collector` that answer an experiment, without the place to read from."""
    commands = []
    for answer in experiment.answers:
        words = [*shlex.split(answer), "--experiment", experiment.name]
        # Throughput is what compare tests, or the duration where no run has it.
        if words[0] == "compare" and "--metric" not in words and experiment.metric != "throughput":
            words += ["--metric", experiment.metric]
        commands.append(words)
    return commands


def _check_answers(experiment: "Experiment") -> None:
    """Check the options of the commands that answer an experiment, where `collector` is installed.

    Raises:
        MisuseError: one has an option, facet or metric that does not exist.
    """
    program = find_collector_command()
    for words in _answers(experiment) if program else ():
        done = subprocess.run([str(program), *words, "--check"], capture_output=True, text=True, check=False)
        if done.returncode:
            reason = done.stderr.strip().removeprefix("collector: ")
            raise MisuseError(f"answer `{shlex.join(words)}`: {reason}")


def _await_figures(program: str, experiment: str, connection: Sequence[str]) -> bool:
    """Wait for the figures of all ended runs; return whether the collector answers. If not, its command prints why."""
    words = [program, "query", "sql", _WITHOUT_FIGURES.format(experiment.replace("'", "''")), "--format", "csv"]
    deadline = time.monotonic() + _FIGURES_SECONDS
    while True:
        asked = subprocess.run([*words, *connection], stdout=subprocess.PIPE, text=True, check=False)
        if asked.returncode or asked.stdout.split()[-1] == "0" or time.monotonic() > deadline:
            return asked.returncode == 0


def _answer(experiment: "Experiment", config: "AgentConfig", *, is_stored: bool) -> None:
    """Print the answer by the collector's own commands; if they cannot run now, print them for later."""
    connection = connection_words(config)
    commands = [[*words, *connection] for words in _answers(experiment)]
    if not commands:
        return
    program = find_collector_command()
    if program is None:
        reason = "there is no `collector` here; run these where it is"
    elif not is_stored:
        reason = "when the collector has the samples, run these"
    elif not _await_figures(program, experiment.name, connection):
        reason = "when the collector answers, run these"
    else:
        for words in commands:
            click.echo(f"\n$ collector {shlex.join(words)}", err=True)
            subprocess.run([program, *words], check=False)
        return
    click.echo(f"gpuagent: {reason}:", err=True)
    for words in commands:
        click.echo(f"  collector {shlex.join(words)}", err=True)


class _Lines:
    """A display of progress with a line for each run."""

    def __init__(self, journal: "Journal", every: Sequence["Trial"]) -> None:
        self._journal, self._every = journal, every

    def wait(self, trial: "Trial", reason: str) -> None:
        """Print why the next run waits."""
        self._print(trial, reason)

    def begin(self, trial: "Trial") -> None:
        """Print which run begins."""
        self._print(trial, trial.describe())

    def end(self, trial: "Trial", update: "RunUpdate", seconds: float, cool_down_seconds: float) -> None:
        """Print how a run ended, and the expected time of the rest."""
        left = self._journal.left(self._every)
        output = f"; output: {update.run_directory}" if update.HasField("exit_code") else ""
        reason = f": {update.reason}{output}" if update.reason else ""
        rest = f"; about {_duration(self._journal.expected_seconds(left))} left" if left else ""
        # Reading the temperatures takes less than a second.
        cool_down = f" after {cool_down_seconds:.1f} s of cool-down" if cool_down_seconds >= 1 else ""
        took = f"in {seconds:.1f} s{cool_down}"
        self._print(trial, f"{update.run_id} {update.status.replace('_', ' ')} {took}{reason}{rest}")

    def note(self, words: str) -> None:
        """Print something else."""
        click.echo(f"gpuagent: {words}", err=True)

    def _print(self, trial: "Trial", words: str) -> None:
        self.note(f"[{self._every.index(trial) + 1}/{len(self._every)}] {words}")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
