"""`gpuagent experiment`: many runs that answer one question, from a file."""

import collections
import contextlib
import shutil
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuagent.cli.experiment_answer import Answer, await_delivery, is_narrow
from gpuagent.cli.node_agent import PLANNING, NodeAgent, given_to_agent, node_agent
from gpuagent.cli.options import agent_config, agent_options
from gpuagent_common.cli import MOST, NAME, interrupt_on_signals
from gpuagent_common.connection import TokenError, read_token
from gpuagent_common.errors import MisuseError
from gpuagent_common.folders import expand_user
from gpuagent_common.text import counted
from gpuagent_common.waiting import waiting_for

if TYPE_CHECKING:
    from gpuagent.agent_config import AgentConfig
    from gpuagent.experiment.conduct import Journal
    from gpuagent.experiment.file import Experiment
    from gpuagent.experiment.gpus import NodeGpus
    from gpuagent.experiment.plan import Trial
    from gpuagent_proto.v1.run_pb2 import RunSpec, RunUpdate

_OUTPUT_HELP = "Folder of the answer's tables and figures.  [default: NAME-answer]"


@click.group()
def command() -> None:
    """Run an experiment from a file."""


@command.command(
    epilog="""\b
Examples:
  gpuagent experiment run containers --dry-run
  gpuagent experiment run study.yaml --platform satori
  gpuagent experiment run layers --param vgg16:steps=20 --repeats 4 --name layers-short
  gpuagent experiment run vm-container --data ~/tiny-imagenet-200 --output vm-container"""
)
@click.argument("file", metavar="FILE|STUDY", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--dry-run", is_flag=True, help="Print the runs and the expected time; run nothing.")
@click.option("--only", metavar="K=V", multiple=True, help="Only cells of this environment or workload; repeatable.")
@click.option(
    "--param",
    "parameters",
    metavar="[WORKLOAD:]K=V",
    multiple=True,
    help="Replace a parameter of the workloads that have it; repeatable.",
)
@click.option("--data", metavar="[WORKLOAD=]DIR", multiple=True, help="Real data of the workloads; repeatable.")
@click.option("--name", type=NAME, metavar="NAME", help="Another name for the experiment.")
@click.option("--repeats", metavar="N", type=click.IntRange(1, MOST), help="Another number of repeats.")
@click.option("--until", metavar="WIDTH", help="Stop at a planned look with intervals this narrow, such as 2%.")
@click.option("--output", metavar="DIR", type=click.Path(path_type=Path), help=_OUTPUT_HELP)
@click.option("--force", is_flag=True, help="Start even if the GPUs are busy or torch cannot use them.")
@agent_options
@click.pass_context
def run(
    ctx: click.Context,
    /,
    file: Path,
    dry_run: bool,
    only: tuple[str, ...],
    parameters: tuple[str, ...],
    data: tuple[str, ...],
    name: str | None,
    repeats: int | None,
    until: str | None,
    output: Path | None,
    force: bool,
    **options: Any,
) -> int:
    """Make the runs of an experiment and answer it.

    FILE is YAML, or the name of a study from `gpuagent experiment list`; `gpuagent experiment schema` prints its
    fields. Cells for which this node lacks an environment, an image or GPUs are skipped and listed. After an
    interruption the same command resumes; a run that has ended is never repeated.
    """
    from gpuagent.agent_config import find_place
    from gpuagent.experiment import plan
    from gpuagent.experiment.conduct import Journal, check_cells, check_concerns, occupant_concerns, torch_concerns
    from gpuagent.experiment.file import find_file, parse_width, read_experiment
    from gpuagent.experiment.gpus import NodeGpus
    from gpuagent.locations import lock
    from gpuagent.runs.catalogue import Catalogue
    from gpuagent.runs.planning import Planner

    path = find_file(file)
    wanted = read_experiment(path)
    wanted = replace(wanted, until=parse_width(until)) if until else wanted
    # What has begun is the whole file: a part of it continues it, and so does the rest.
    whole = plan.narrowed(wanted, (), name=name, repeats=repeats)
    experiment = plan.narrowed(whole, only)
    config = agent_config(options, allow_commands=True)
    _check_token(config.token_file)
    catalogue = Catalogue(config.python)
    if texts := [*parameters, *_data_parameters(data)]:
        experiment, whole = (
            plan.with_parameters(one, texts, lambda *named: catalogue.find(named[0]).has(named[1]))
            for one in (experiment, whole)
        )
    answer = Answer.of(experiment, str(file) if path != file else str(path.resolve()), name, output)
    answer.check()
    gpus = NodeGpus()
    with waiting_for("gpuagent", "the checks of environments, images and GPUs"):
        lacking = check_cells(experiment, Planner(catalogue, allow_commands=True).plan, gpus, may_lack_all=dry_run)
    journal_path = find_place(config)[0] / "experiments" / f"{experiment.name}.jsonl"
    if dry_run:
        _print_plan(experiment, Journal(journal_path, plan.fingerprint(whole)), lacking)
        return 0
    interrupt_on_signals()
    for line in _skipped(lacking):
        click.echo(f"gpuagent: {line}", err=True)
    journal_path.parent.mkdir(parents=True, exist_ok=True)
    with lock(journal_path.with_suffix(".lock"), held=f"another command makes the runs of {experiment.name} here"):
        journal = Journal(journal_path, plan.fingerprint(whole))
        if journal.left(plan.all_trials(experiment, lacking)):
            busy = occupant_concerns(experiment, gpus)
            with waiting_for("gpuagent", f"the torch of {config.python} to try the GPUs"):
                check_concerns((*busy, *torch_concerns(experiment, config.python, gpus)), force=force)
        begin = partial(_conduct, experiment, journal, lacking, config, given_to_agent(ctx), gpus)
        is_stored, has_stopped = _go_on(begin, journal)
    answer.print(config, is_stored=is_stored)
    every = plan.all_trials(experiment, lacking)
    has_failed = any(done.status != "succeeded" for done in journal.ended(every))
    return int(has_failed or not (has_stopped or not journal.left(every)))


def _check_token(path: Path) -> None:
    """Raise MisuseError for a token that nobody will accept, before hours of runs; it may still come."""
    try:
        read_token(path)
    except FileNotFoundError:
        pass
    except TokenError as error:
        raise MisuseError(str(error)) from error


@command.command(epilog="\b\nExample:\n  gpuagent experiment show containers > mine.yaml")
@click.argument("file", metavar="FILE|STUDY", type=click.Path(path_type=Path, dir_okay=False))
def show(file: Path) -> None:
    """Print an experiment file, such as that of a study.

    Give a copy that you change a name of its own.
    """
    from gpuagent.experiment.file import find_file

    click.echo(find_file(file).read_text(encoding="utf-8"), nl=False)


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


def _data_parameters(given: Sequence[str]) -> list[str]:
    """Return --data as parameters.

    Raises:
        MisuseError: a directory does not exist.
    """
    texts = []
    for text in given:
        before, equals, after = text.partition("=")
        # A directory's own name may have an equals sign.
        workload, folder = (before, after) if equals and "/" not in before else ("", text)
        path = expand_user(folder).absolute()
        if not path.is_dir():
            raise MisuseError(f"--data {folder}: there is no such directory; see: gpuagent prepare --help")
        texts.append(f"{workload}{':' if workload else ''}data={path}")
    return texts


def _print_plan(experiment: "Experiment", journal: "Journal", lacking: Mapping[str, str]) -> None:
    from gpuagent.experiment import plan

    every = plan.all_trials(experiment, lacking)
    left = journal.left(every)
    by_cell: dict[str, list[Trial]] = {}
    for trial in left:
        by_cell.setdefault(trial.cell.key, []).append(trial)
    click.echo(f"{experiment.name}: {counted(len(left), 'run')} left of {len(every)}, in turns")
    if early := plan.looks(experiment)[:-1]:
        click.echo(f"it may stop after {', '.join(map(str, early))} repeats")
    lines = [("runs", "each", "cell")]
    for cell in plan.cells(experiment):
        trials = by_cell.get(cell.key, [])
        seconds = journal.expected_seconds(trials[:1])
        expected = _duration(seconds) if seconds else "–"
        described = cell.describe()
        lines.append(("skip", "–", described) if cell.key in lacking else (str(len(trials)), expected, described))
    for columns in lines:
        click.echo("\n".join(_columns(*columns)))
    for line in _skipped(lacking):
        click.echo("\n".join(textwrap.wrap(line, _width(), subsequent_indent="  ")))
    if not left:
        return
    seconds = journal.expected_seconds(left)
    click.echo(f"about {_duration(seconds)}, going by earlier runs" if seconds else "no earlier run to estimate from")


def _columns(runs: str, each: str, cell: str) -> list[str]:
    """Return a line of the plan's table, wrapped."""
    indent = " " * 16
    return textwrap.wrap(f"{runs:>5}  {each:>7}  {cell}", _width(), subsequent_indent=indent, break_on_hyphens=False)


def _width() -> int:
    return max(40, shutil.get_terminal_size().columns)


def _skipped(lacking: Mapping[str, str]) -> list[str]:
    """Return a line for each reason to skip cells."""
    counts = collections.Counter(lacking.values())
    return [f"skipped {counted(number, 'cell')}: {reason}" for reason, number in counts.items()]


def _go_on(begin: Callable[[], tuple[bool, bool]], journal: "Journal") -> tuple[bool, bool]:
    """Return what `begin` does; begin again if another's agent ends first, unless no run was made since the last time.

    An agent that lasts as long as another command ends between two runs, when that command has no run left.
    """
    from gpuagent.errors import AgentEndedError

    made_before = -1
    while True:
        try:
            return begin()
        except AgentEndedError:
            if len(journal.done) == made_before:
                raise
            made_before = len(journal.done)
            click.echo("gpuagent: the agent on this node has ended; another one makes the remaining runs", err=True)


def _conduct(
    experiment: "Experiment",
    journal: "Journal",
    lacking: Mapping[str, str],
    config: "AgentConfig",
    given: Sequence[str],
    gpus: "NodeGpus",
) -> tuple[bool, bool]:
    """Make the runs that are left.

    Returns:
        Whether the collector has the samples of an agent of our own, and whether a planned look ended the experiment.
    """
    from gpuagent.experiment import plan
    from gpuagent.experiment.conduct import Conductor

    every = plan.all_trials(experiment, lacking)
    left = journal.left(every)
    if not left:
        failed = sum(done.status != "succeeded" for done in journal.ended(every))
        again = f", {failed} without success; --name NAME makes them again, as another experiment" if failed else ""
        click.echo(f"gpuagent: all {len(every)} runs of {experiment.name} have been made{again}", err=True)
        return True, False
    with node_agent(config, given, plan.spec(left[0], experiment, str(Path.cwd()))) as agent:
        conductor = Conductor(
            experiment=experiment,
            journal=journal,
            gpus=gpus,
            submit=partial(_submit, agent),
            observer=_Lines(journal, every),
            working_directory=str(Path.cwd()),
            lacking=lacking,
            is_narrow=lambda: is_narrow(
                experiment, config, agent.waiting, made=sum(done.repeat > 0 for done in journal.done)
            ),
        )
        try:
            conductor.run()
        except KeyboardInterrupt:
            made = len(journal.ended(every))
            click.echo(f"gpuagent: {made} of {len(every)} runs are made; the same command resumes", err=True)
            raise
        await_delivery(agent.waiting)
    return not agent.left_behind(), conductor.has_stopped


def _submit(agent: NodeAgent, spec: "RunSpec") -> Iterator["RunUpdate"]:
    """Yield the updates of a run, and print what its start waits for."""
    with contextlib.ExitStack() as notice:
        notice.enter_context(waiting_for("gpuagent", f"{PLANNING}; or another program that this node runs first"))
        for update in agent.submit(spec):
            if update.status != "queued" or update.reason:
                notice.close()
            yield update


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
        took = f"in {update.seconds if update.HasField('seconds') else seconds:.1f} s{cool_down}"
        self._print(trial, f"{update.run_id} {update.status.replace('_', ' ')} {took}{reason}{rest}")
        if update.notice:
            self._print(trial, update.notice)

    def note(self, words: str) -> None:
        """Print something else."""
        click.echo(f"gpuagent: {words}", err=True)

    def _print(self, trial: "Trial", words: str) -> None:
        self.note(f"[{self._every.index(trial) + 1}/{len(self._every)}] {words}")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
