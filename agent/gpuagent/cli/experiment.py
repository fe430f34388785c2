"""`gpuagent experiment`: many runs that answer one question, from a file."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuagent.cli.node_agent import NodeAgent, given_to_agent, node_agent
from gpuagent.cli.options import agent_config, agent_options
from gpuagent_common.errors import GpuAgentError

if TYPE_CHECKING:
    from gpuagent.agent_config import AgentConfig
    from gpuagent.experiment.file import Experiment
    from gpuagent.experiment.journal import Journal
    from gpuagent.experiment.plan import Trial
    from gpuagent_proto.v1.run_pb2 import RunUpdate

# How long the last samples may take to reach the collector before the answer is asked for without them.
_DELIVERED_SECONDS = 20.0


@click.group()
def command() -> None:
    """Run an experiment from a file: many runs, one question."""


@command.command(
    epilog="""\b
Examples:
  gpuagent experiment run study.yaml --dry-run
  gpuagent experiment run study.yaml --platform satori
  gpuagent experiment run study.yaml --only environment=bare --name bare-only"""
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--dry-run", is_flag=True, help="Print every command and the expected time, and run nothing.")
@click.option("--only", metavar="K=V", multiple=True, help="Only cells of this environment or workload.")
@click.option("--name", help="Another name for the experiment.")
@click.option("--repeats", type=click.IntRange(1), help="Another number of repeats.")
@click.option("--force", is_flag=True, help="Begin even though something speaks against it.")
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
    """Make the runs of FILE in turns, and print the answer.

    Given again after an interruption, it goes on where it stopped; runs that have ended are never made again. FILE is
    YAML; `gpuagent experiment schema` prints what it may say, and `gpuagent experiment list` the studies that come
    with gpuagent.
    """
    from gpuagent.agent_config import find_place
    from gpuagent.experiment import plan
    from gpuagent.experiment.journal import Journal
    from gpuagent.experiment.preflight import check_cells
    from gpuagent.experiment.studies import find_file
    from gpuagent.locations import lock
    from gpuagent.runs.catalogue import Catalogue
    from gpuagent.runs.planning import Planner

    experiment = plan.narrowed(_read(find_file(file)), only, name=name, repeats=repeats)
    config = agent_config(options, allow_commands=True)
    check_cells(experiment, Planner(Catalogue(config.python), allow_commands=True).plan)
    folder, _ = find_place(config)
    path, fingerprint = folder / "experiments" / f"{experiment.name}.jsonl", plan.fingerprint(experiment)
    if dry_run:
        _print_plan(experiment, Journal(path, fingerprint))
        return 0
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    path.parent.mkdir(parents=True, exist_ok=True)
    with lock(path.with_suffix(".lock"), held=f"another command makes the runs of {experiment.name} here"):
        journal = Journal(path, fingerprint)
        conducted = _conduct(experiment, journal, config, given_to_agent(ctx), force=force)
    _answer(experiment, config, is_stored=conducted.is_stored)
    failed = sum(1 for done in journal.done if done.status != "succeeded")
    return int(bool(failed) or not conducted.is_complete)


@command.command()
def schema() -> None:
    """Print the JSON Schema of experiment files."""
    from gpuagent.experiment.file import SCHEMA

    click.echo(SCHEMA.read_text(), nl=False)


@command.command("list")
def list_studies() -> None:
    """List the studies that come with gpuagent; `run` takes their names."""
    from gpuagent.experiment.studies import studies

    for path in studies():
        click.echo(f"{path.stem:<12} {_read(path).question or ''}")


def _read(path: Path) -> "Experiment":
    from gpuagent.experiment.file import read_experiment

    return read_experiment(path)


def _print_plan(experiment: "Experiment", journal: "Journal") -> None:
    from gpuagent.experiment import conduct, plan

    left = [trial for block in plan.trials(experiment) for trial in block if not journal.ended(trial)]
    for trial in left:
        click.echo(shlex.join(plan.command_line(trial, experiment)))
    seconds = conduct.expected_seconds(journal.done, [trial.cell for trial in left])
    expected = f"about {_duration(seconds)} by the runs before" if seconds else "no run before to tell the time from"
    runs = "1 run" if len(left) == 1 else f"{len(left)} runs"
    click.echo(f"gpuagent: {runs} left of {len(left) + len(journal.done)}; {expected}", err=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Conducted:
    """Whether all repeats are there, and whether the collector has what an agent of our own measured."""

    is_complete: bool
    is_stored: bool


def _conduct(
    experiment: "Experiment", journal: "Journal", config: "AgentConfig", given: Sequence[str], *, force: bool
) -> _Conducted:
    """Make the runs that are left."""
    from gpuagent.experiment import plan
    from gpuagent.experiment.conduct import Conductor
    from gpuagent.experiment.gpus import NodeGpus
    from gpuagent.experiment.preflight import concerns

    every = [trial for block in plan.trials(experiment) for trial in block]
    left = [trial for trial in every if not journal.ended(trial)]
    if not left:
        click.echo(f"gpuagent: all {len(every)} runs of {experiment.name} have been made", err=True)
        return _Conducted(is_complete=True, is_stored=True)
    gpus = NodeGpus()
    against = list(concerns(experiment, config.python, gpus))
    if against and not force:
        raise GpuAgentError(f"{'; '.join(against)}. --force begins all the same")
    first = plan.spec(left[0], experiment, str(Path.cwd()))
    with node_agent(config, given, first) as agent:
        conductor = Conductor(
            experiment=experiment,
            journal=journal,
            gpus=gpus,
            submit=agent.submit,
            teller=_Lines(journal, every),
            working_directory=str(Path.cwd()),
        )
        try:
            complete = conductor.run()
        except KeyboardInterrupt:
            made = len(journal.done)
            click.echo(f"gpuagent: {made} of {len(every)} runs are made; the same command goes on from there", err=True)
            raise
        _wait_until_delivered(agent)
    return _Conducted(is_complete=complete, is_stored=not agent.left_behind())


def _wait_until_delivered(agent: NodeAgent, sleep: Callable[[float], None] = time.sleep) -> None:
    deadline = time.monotonic() + _DELIVERED_SECONDS
    while agent.waiting() and time.monotonic() < deadline:
        sleep(0.1)


def _answer(experiment: "Experiment", config: "AgentConfig", *, is_stored: bool) -> None:
    """Print what answers the question, by the collector's own commands; where they cannot, how to have it later."""
    commands, place = _answering_commands(experiment), _place(config)
    if not commands:
        return
    program = shutil.which("collector", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if program is None:
        _tell_for_later("there is no `collector` here; where it is, these answer", commands)
    elif not is_stored:
        _tell_for_later("when the collector has them, these answer", [[*words, *place] for words in commands])
    elif not _can_ask(program, place):
        _tell_for_later("when it can be asked, these answer", [[*words, *place] for words in commands])
    else:
        for words in commands:
            click.echo(f"\n$ collector {shlex.join(words)}", err=True)
            subprocess.run([program, *words, *place], check=False)


def _answering_commands(experiment: "Experiment") -> list[list[str]]:
    commands = []
    for answer in experiment.answers:
        words = [*shlex.split(answer), "--experiment", experiment.name]
        if words[0] == "compare" and "--metric" not in words:
            words += ["--metric", experiment.metric]
        commands.append(words)
    return commands


def _can_ask(program: str, place: Sequence[str]) -> bool:
    """Return whether the collector answers us at all; if not, `collector` has said why, once for all commands."""
    probe = [program, "query", "sql", "SELECT 1", *place]
    return subprocess.run(probe, stdout=subprocess.DEVNULL, check=False).returncode == 0


def _tell_for_later(why: str, commands: Sequence[Sequence[str]]) -> None:
    click.echo(f"gpuagent: {why}:", err=True)
    for words in commands:
        click.echo(f"  collector {shlex.join(words)}", err=True)


def _place(config: "AgentConfig") -> list[str]:
    """Return the options with which `collector` asks the agent's collector."""
    given: dict[str, Path | None] = {"--token-file": config.token_file}
    if config.tls:
        given |= {"--ca-file": config.tls.ca, "--client-cert": config.tls.certificate, "--client-key": config.tls.key}
    files = [word for option, path in given.items() if path for word in (option, str(path))]
    return ["--collector", config.collector, *files]


class _Lines:
    """Tells how the experiment comes along, a line a run."""

    def __init__(self, journal: "Journal", every: Sequence["Trial"]) -> None:
        self._journal, self._every = journal, every

    def waits(self, trial: "Trial", words: str) -> None:
        """Say what the next run waits for."""
        self._say(trial, words)

    def begins(self, trial: "Trial") -> None:
        """Say what begins."""
        self._say(trial, trial.describe())

    def ended(self, trial: "Trial", update: "RunUpdate", seconds: float, cool_down_seconds: float) -> None:
        """Say how it ended, and how long the rest will take."""
        from gpuagent.experiment.conduct import expected_seconds

        left = [one.cell for one in self._every if not self._journal.ended(one)]
        reason = f": {update.reason}; its output is in {update.run_directory}" if update.reason else ""
        rest = f"; about {_duration(expected_seconds(self._journal.done, left))} left" if left else ""
        # Temperatures are asked for in less than a second.
        cool_down = f" after {cool_down_seconds:.1f} s of cool-down" if cool_down_seconds >= 1 else ""
        took = f"in {seconds:.1f} s{cool_down}"
        self._say(trial, f"{update.run_id} {update.status.replace('_', ' ')} {took}{reason}{rest}")

    def says(self, words: str) -> None:
        """Say something else."""
        click.echo(f"gpuagent: {words}", err=True)

    def _say(self, trial: "Trial", words: str) -> None:
        click.echo(f"gpuagent: [{self._every.index(trial) + 1}/{len(self._every)}] {words}", err=True)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
