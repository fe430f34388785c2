"""`gpuagent experiment`: many runs that answer one question, from a file."""

import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuagent.cli.collector_command import is_reachable, own_collector
from gpuagent.cli.experiment_answer import check_answer, print_answer
from gpuagent.cli.node_agent import find_platform, given_to_agent, report_undelivered
from gpuagent.cli.options import agent_config, agent_options
from gpuagent_common.cli import MOST, NAME, SuggestingGroup, interrupt_on_signals
from gpuagent_common.connection import TokenError, default_token_file, read_token
from gpuagent_common.errors import MisuseError
from gpuagent_common.folders import expand_user
from gpuagent_common.text import counted, write_duration
from gpuagent_common.waiting import waiting_for

if TYPE_CHECKING:
    from gpuagent.agent_config import AgentConfig
    from gpuagent.cli.conducting import RunLines
    from gpuagent.experiment.conduct import Journal
    from gpuagent.experiment.plan import Trial

_OUTPUT_HELP = "Folder of the answer's tables and figures.  [default: NAME-answer]"


@click.group(cls=SuggestingGroup)
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
@click.option("--store", metavar="FILE", help="Store in this file, without a running collector.")
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
    store: str | None,
    **options: Any,
) -> int:
    """Make the runs of an experiment and answer it.

    FILE is YAML, or the name of a study from `gpuagent experiment list`; `gpuagent experiment schema` prints its
    fields. Cells for which this node lacks an environment, an image or GPUs are skipped and listed. After an
    interruption the same command resumes; a run that has ended is never repeated. Each --platform has its own runs.
    """
    from gpuagent.agent_config import find_place
    from gpuagent.cli.benching import with_own_spool
    from gpuagent.cli.conducting import RunLines, make_runs
    from gpuagent.experiment import plan
    from gpuagent.experiment.conduct import (
        Journal,
        check_cells,
        check_concerns,
        check_parameters,
        describe_skipped,
        environment_concerns,
        occupant_concerns,
        torch_concerns,
    )
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
    config, given = agent_config(options, allow_commands=True), given_to_agent(ctx)
    if store:
        config, given = with_own_spool(config, store), [*given, "collector", "spool"]
    _check_token(config)
    catalogue = Catalogue(config.python)
    if texts := [*parameters, *_data_parameters(data)]:
        experiment, whole = (
            plan.with_parameters(one, texts, lambda *named: catalogue.find(named[0]).has(named[1]))
            for one in (experiment, whole)
        )
    answer: list[str] = []
    if experiment.answers:
        answer = ["answer", str(file) if path != file else str(path.resolve())]
        answer += ["--name", name] if name else []
        answer += ["--output", str(output)] if output else []
    check_answer(answer)
    gpus = NodeGpus()
    with waiting_for("gpuagent", "the checks of environments, images and GPUs"):
        planner, here = Planner(catalogue, allow_commands=True), str(Path.cwd())
        lacking = check_cells(experiment, planner.plan, gpus, may_lack_all=dry_run, working_directory=here)
        check_parameters(experiment, catalogue.check_together)
    journal_path = find_place(config)[0] / "experiments" / f"{experiment.name}.jsonl"
    place, alone = find_platform(config, given), list(environment_concerns(experiment, lacking))
    if dry_run:
        _print_plan(Journal(journal_path, whole, experiment, lacking, place))
        for line in alone:
            click.echo(textwrap.fill(f"{line}; --force starts nevertheless", _width()))
        return 0
    interrupt_on_signals()
    for line in describe_skipped(experiment, lacking):
        click.echo(f"gpuagent: {line}", err=True)
    journal_path.parent.mkdir(parents=True, exist_ok=True)
    if store:
        config = replace(config, collector=ctx.with_resource(own_collector(store, default_token_file())))
    with lock(journal_path.with_suffix(".lock"), held=f"another command makes the runs of {experiment.name} here"):
        journal = Journal(journal_path, whole, experiment, lacking, place)
        lines, has_delivered = RunLines(journal), True
        if journal.left():
            busy = occupant_concerns(experiment, gpus)
            with waiting_for("gpuagent", f"the torch of {config.python} to try the GPUs"):
                check_concerns((*alone, *busy, *torch_concerns(experiment, config.python, gpus)), force=force)
        else:
            failed = sum(done.status != "succeeded" for done in journal.ended())
            again = f", {failed} without success; --name NAME makes them again, as another experiment" if failed else ""
            made = f"all {len(journal.ended())} runs of {experiment.name} have been made"
            lines.note(f"{made} as {place.partition(' on ')[0]}{again}")
            has_delivered = _deliver_what_waits(config, lines)
        where = f"in {store} as {experiment.name}" if store else ""
        is_stored, has_stopped = make_runs(journal, config, given, gpus, lines, place=where)
    if has_delivered:
        print_answer(answer, experiment, config, store, is_stored=is_stored)
    has_failed = any(done.status != "succeeded" for done in journal.ended())
    return int(has_failed or not (has_stopped or not journal.left()))


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
        row = f"{path.stem:<12} {read_experiment(path).question or ''}"
        click.echo(textwrap.fill(row, _width(), subsequent_indent=" " * 13, break_on_hyphens=False))


def _check_token(config: "AgentConfig") -> None:
    """Raise MisuseError for an invalid token, before hours of runs; a missing one may still come."""
    try:
        read_token(config.token_file)
    except FileNotFoundError:
        pass
    except TokenError as error:
        raise MisuseError(str(error)) from error


def _data_parameters(given: Sequence[str]) -> list[str]:
    """Return --data as parameters. Raises MisuseError where a directory does not exist."""
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


def _print_plan(journal: "Journal") -> None:
    from gpuagent.experiment.conduct import describe_skipped
    from gpuagent.experiment.plan import looks

    experiment, lacking, left = journal.experiment, journal.lacking, journal.left()
    by_cell: dict[str, list[Trial]] = {}
    for trial in left:
        by_cell.setdefault(trial.cell.key, []).append(trial)
    click.echo(f"{experiment.name}: {counted(len(left), 'run')} left of {len(journal.every)}, in turns")
    if early := looks(experiment)[:-1]:
        click.echo(f"it may stop after {', '.join(map(str, early))} repeats")
    lines = [("runs", "each", "cell")]
    for cell in experiment.cells:
        trials = by_cell.get(cell.key, [])
        seconds = journal.expected_seconds(trials[:1])
        expected = write_duration(seconds) if seconds else "–"
        described = cell.describe()
        lines.append(("skip", "–", described) if cell.key in lacking else (str(len(trials)), expected, described))
    for runs, each, described in lines:
        row = f"{runs:>5}  {each:>7}  {described}"
        click.echo(textwrap.fill(row, _width(), subsequent_indent=" " * 16, break_on_hyphens=False))
    for line in describe_skipped(experiment, lacking):
        click.echo("\n".join(textwrap.wrap(line, _width(), subsequent_indent="  ")))
    if not left:
        return
    seconds = journal.expected_seconds(left)
    expected = f"about {write_duration(seconds)}, going by earlier runs"
    click.echo(expected if seconds else "no earlier run to estimate from")


def _width() -> int:
    return max(40, shutil.get_terminal_size().columns)


def _deliver_what_waits(config: "AgentConfig", lines: "RunLines") -> bool:
    """Have messages of earlier runs delivered, unless an agent runs that does so; return whether none waits then."""
    from gpuagent.agent import Agent
    from gpuagent.agent_config import find_place
    from gpuagent.delivery.spool import count_messages
    from gpuagent.delivery.spool_file import SPOOL_FILE
    from gpuagent.service import find_agent_of

    spool, node_uuid = find_place(config)
    if running := find_agent_of(spool, node_uuid, config.beside):
        running.close()
        return True
    number = count_messages(spool / SPOOL_FILE)
    if not number:
        return True
    waiting = counted(number, "message")
    if not is_reachable(config.collector):
        where = f"in {spool}, and no collector listens at {config.collector}"
        lines.note(f"{waiting} {'wait' if number > 1 else 'waits'} {where}; once it does, run this command again")
        return False
    agent = Agent(config)
    with waiting_for("gpuagent", f"{config.collector} to take {waiting}"), agent:
        pass
    if report_undelivered(agent):
        return False
    lines.note(f"{waiting} of earlier runs delivered to {config.collector}")
    return True
