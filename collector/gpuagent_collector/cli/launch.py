"""`collector launch`: have connected agents run something."""

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gpuagent_collector.cli.asking import asking
from gpuagent_collector.cli.choosing import Choice, chosen_agents, tell_refusals
from gpuagent_collector.cli.completing import stored_workloads
from gpuagent_collector.cli.launch_experiment import launch_experiment
from gpuagent_collector.cli.options import CollectorOptions, collector_options
from gpuagent_common.cli import ProgramCommand
from gpuagent_common.errors import MisuseError

if TYPE_CHECKING:
    from gpuagent_collector.launching.client import RunsClient
    from gpuagent_collector.launching.export import Refusals
    from gpuagent_collector.launching.progress import LaunchedRun, Progress
    from gpuagent_collector.query.remote import RemoteReader
    from gpuagent_proto.v1.run_pb2 import RunSpec

_EXAMPLES = """\b
Examples:
  collector launch mnist --on platform=satori --repeat 7 --wait
  collector launch resnet18 --on label.rack=7,platform=satori --all
  collector launch --on node=gpu-3 --wait -- python train.py --lr 0.1
  collector launch mnist --param epochs=3 --environment docker:lab/mnist:2 --any
  collector launch study.yaml --on platform=satori --wait
"""

_OF_RUNS = ("parameters", "environment", "beside", "cpus", "memory", "changes", "labels", "timeout_seconds")
# Options that make sense only with a workload or program, and only with an experiment file.
_OF_FILES = ("only", "force")


@click.command(cls=ProgramCommand, epilog=_EXAMPLES)
@click.argument(
    "workload", required=False, metavar="WORKLOAD | FILE | -- PROGRAM [ARGUMENT]…", shell_complete=stored_workloads
)
@click.option(
    "--on",
    "targets",
    multiple=True,
    metavar="TERMS",
    help="Which agents: platform=NAME, node=NAME, label.KEY=VALUE, comma-separated, and all have to hold. Of several "
    "--on, one has to. Without, the one agent that is connected.",
)
@click.option("--all", "on_all", is_flag=True, help="On every agent that fits; without, there has to be one.")
@click.option("--any", "on_any", is_flag=True, help="On the one that has least to do.")
@click.option("--param", "parameters", multiple=True, metavar="K=V", help="A parameter of the workload.")
@click.option(
    "--repeat",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="How many runs an agent; of FILE how many repeats.",
)
@click.option(
    "--environment", default="bare", show_default=True, metavar="ENV[:IMAGE]", help="How to contain it, on the node."
)
@click.option("--with", "beside", multiple=True, metavar="WORKLOAD", help="Runs beside it, as cpu-burn.")
@click.option("--cpus", type=float, metavar="N", help="How many CPUs it may use; by default all of the node.")
@click.option("--memory", metavar="SIZE", help="How much memory it may use, as 8G; by default all of the node.")
@click.option(
    "--change",
    "changes",
    multiple=True,
    metavar="cpus=N@SECONDSs",
    help="Changes its CPUs while it runs, as cpus=8@60s; can be given several times.",
)
@click.option("--label", "labels", multiple=True, metavar="K=V", help="A label of the runs.")
@click.option(
    "--experiment",
    metavar="NAME",
    help="Groups runs that answer one question.  [default: this launch, or as FILE says]",
)
@click.option("--only", metavar="K=V", multiple=True, help="Of FILE only cells of this environment or workload.")
@click.option("--force", is_flag=True, help="Begin FILE even though something speaks against it.")
@click.option(
    "--timeout",
    "timeout_seconds",
    type=click.FloatRange(0, 365 * 86_400, min_open=True),
    metavar="SECONDS",
    help="Stop a run after this.",
)
@click.option("--wait", is_flag=True, help="Follow the runs, and end when they have; Ctrl-C leaves them running.")
@click.option("--json", "as_json", is_flag=True, help="Print the runs as JSON.")
@collector_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    workload: str | None,
    targets: tuple[str, ...],
    on_all: bool,
    on_any: bool,
    wait: bool,
    as_json: bool,
    collector: CollectorOptions,
    only: tuple[str, ...],
    force: bool,
    **asked: Any,
) -> int:
    """Have connected agents run a workload, any program or an experiment file, measured.

    An agent makes one measured run at a time, in the order they came. It runs images, and programs other than the
    built-in workloads, only if its owner started it with --allow-commands. FILE is as of `gpuagent experiment run`, or
    the name of a study that comes with gpuagent; launched again after an interruption it goes on. The exit code is 0
    when the agents took the work; with --wait, when all runs have succeeded.
    """
    from gpuagent_collector.launching.choice import Spread, Target
    from gpuagent_collector.launching.experiments import find_file, read_file
    from gpuagent_collector.launching.spec import run_spec

    if on_all and on_any:
        raise MisuseError("--all and --any contradict each other; give one of them")
    choice = Choice(
        targets=[Target.parse(text) for text in targets],
        spread=Spread.ALL if on_all else Spread.ANY if on_any else Spread.ONE,
    )
    path = find_file(workload) if workload else None
    if path is None or ctx.meta.get("program"):
        _refuse(ctx, _OF_FILES, "for experiment files only")
        spec = run_spec(workload, ctx.meta.get("program", []), **asked)
        return _launch_runs(spec, choice, collector, wait=wait, as_json=as_json)
    _refuse(ctx, _OF_RUNS, "not with an experiment file, which says that itself")
    repeats = asked["repeat"] if _is_given(ctx, "repeat") else None
    file = read_file(path, name=asked["experiment"], repeats=repeats, only=only, force=force)
    return launch_experiment(ctx, file, choice, collector, wait=wait, as_json=as_json)


def _is_given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _refuse(ctx: click.Context, names: Sequence[str], why: str) -> None:
    given = [option.opts[0] for option in ctx.command.params if option.name in names and _is_given(ctx, option.name)]
    if given:
        raise MisuseError(f"{', '.join(given)}: {why}")


def _launch_runs(spec: "RunSpec", choice: Choice, collector: CollectorOptions, *, wait: bool, as_json: bool) -> int:
    from gpuagent_collector.launching.client import RunsClient
    from gpuagent_collector.launching.launch import offer
    from gpuagent_collector.launching.progress import launched_runs

    with collector.open() as reader:
        client = RunsClient(reader)
        agents = chosen_agents(client, reader, choice)
        offered = offer(agents, choice.spread, lambda sessions: client.launch(sessions, spec))
        tell_refusals(offered.refusals)
        launched = launched_runs(offered.taken)
        remedy = f"to stop them: collector cancel --experiment {shlex.quote(spec.experiment)}"
        runs = _wait(client, reader, launched, remedy) if wait else _as_taken(launched, remedy)
    _print(runs, offered.refusals, as_json=as_json)
    has_failed = wait and any(run.status != "succeeded" for run in runs)
    return int(bool(offered.refusals) or not runs or has_failed)


def _as_taken(launched: "Sequence[LaunchedRun]", remedy: str) -> "Sequence[Progress]":
    from gpuagent_collector.launching.progress import Progress

    if launched:
        click.echo(f"collector: {remedy}", err=True)
    return [Progress(run=run, is_known=False) for run in launched]


def _wait(
    client: "RunsClient", reader: "RemoteReader", launched: "Sequence[LaunchedRun]", remedy: str
) -> "Sequence[Progress]":
    """Follow the runs to their end; Ctrl-C leaves them running, as it does jobs of a cluster."""
    from gpuagent_collector.launching.follow import follow
    from gpuagent_collector.launching.progress import read_progress
    from gpuagent_collector.launching.show import Lines, LiveTable
    from gpuagent_collector.output.terminal import plain_console

    if not launched:
        return []
    console = plain_console(sys.stderr)
    is_live = console.is_terminal and not console.is_dumb_terminal
    ask = asking(reader, show_sql=False)
    try:
        with LiveTable(console) if is_live else Lines() as show:
            return follow(
                lambda: read_progress(ask, launched),
                lambda: {agent.session_uuid for agent in client.agents()},
                show,
            )
    except KeyboardInterrupt:
        click.echo(f"\ncollector: the runs go on; {remedy}", err=True)
        raise


def _print(runs: "Sequence[Progress]", refusals: "Refusals", *, as_json: bool) -> None:
    from gpuagent_collector.launching.export import to_json
    from gpuagent_collector.launching.show import ended_columns
    from gpuagent_collector.output.listing import print_list
    from gpuagent_collector.output.terminal import plain_console

    if as_json:
        click.echo(to_json(runs, refusals))
    elif runs:
        print_list(ended_columns(), [{"run": run} for run in runs], plain_console(sys.stdout))
