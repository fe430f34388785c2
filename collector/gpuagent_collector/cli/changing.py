"""The commands that change what is stored or runs: `collector delete`, `run` and `cancel`."""

import sys
from collections.abc import Sequence

import click

from gpuagent_collector.cli.options import (
    CollectorOptions,
    ReaderOptions,
    collector_options,
    node_option,
    reader_options,
)
from gpuagent_collector.cli.printing import asking, print_error, print_rows_of
from gpuagent_common.cli import NAME, SuggestingGroup, parse_pairs
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.text import counted, harmless


@click.command(
    epilog="""\b
Examples:
  collector delete --run 01k0r9 --run 01k0ra
  collector delete --experiment first-try --yes
  collector delete --node gpu-07 --store results.duckdb
"""
)
@click.option("--run", "run_ids", multiple=True, metavar="ID", help="Remove this run; repeatable.")
@click.option("--experiment", type=NAME, metavar="NAME", help="Remove all runs of this experiment.")
@node_option("Remove this node (hostname or UUID) with its data and runs.")
@click.option("--yes", is_flag=True, help="Remove without confirmation.")
@reader_options
def delete(run_ids: Sequence[str], experiment: str | None, node: str | None, yes: bool, reader: ReaderOptions) -> None:
    """Remove runs or a node.

    A running collector does it at an operator's request; otherwise the store is changed directly. Prints the number of
    rows first, and the hosts if there are several: two machines with one identity are one node. A run's samples on its
    nodes are removed with it, except for times in which another run was there. Let agents deliver first: data of a
    removed run that they still hold is stored on delivery.
    """
    from gpuagent_collector.exchange.changing import Deletion

    if sum(map(bool, (run_ids, experiment, node))) != 1:
        raise MisuseError("give one of --run, --experiment and --node")
    chosen = Deletion(run_ids=run_ids, experiment=experiment, node=node)
    with reader.open_to_change() as store:
        found = store.delete(chosen, only_count=True)
        for table, count in found.tables.items():
            print_rows_of(table, count)
        still = f", {found.open_runs:,} of which not ended" if found.open_runs else ""
        click.echo(f"  {counted(found.runs, 'run')}{still}", err=True)
        if len(found.hosts) > 1:
            hosts = (f"{harmless(host)} ({counted(runs, 'run')})" for host, runs in found.hosts.items())
            click.echo(f"  from {len(found.hosts):,} hosts: {', '.join(hosts)}", err=True)
        if not yes:
            if not sys.stdin.isatty():
                raise MisuseError("nothing was removed; repeat the command with --yes to remove this")
            click.confirm("Remove all this for good?", abort=True, err=True)
        rows = sum(store.delete(chosen, only_count=False).tables.values())
    click.echo(f"{store.source}: {counted(rows, 'row')} removed")


_RUN_EXAMPLES = """\b
Examples:
  collector run edit mnist-1f2e3d4c5b --note "fan was broken" --exclude
  collector run edit train-7a1b train-7a1c --name resnet-fp16
  collector run edit mnist-1f2e3d4c5b --label rack=7 --label trial=
"""


@click.group(cls=SuggestingGroup, epilog=_RUN_EXAMPLES)
def run() -> None:
    """Correct labels, name and note of runs, or exclude them."""


@run.command(epilog=_RUN_EXAMPLES)
@click.argument("run_ids", metavar="RUN...", nargs=-1, required=True)
@click.option("--label", "labels", multiple=True, metavar="K=V", help="Set a label, or remove it with K=; repeatable.")
@click.option("--name", type=NAME, metavar="NAME", help="Another name of the program; runs are compared by it.")
@click.option("--note", metavar="TEXT", help="A remark; an empty one removes it.")
@click.option(
    "--exclude/--include", "is_excluded", default=None, help="Keep the runs out of comparisons, or take them back."
)
@reader_options
def edit(
    run_ids: Sequence[str],
    labels: Sequence[str],
    name: str | None,
    note: str | None,
    is_excluded: bool | None,
    reader: ReaderOptions,
) -> None:
    """Edit runs.

    What was measured stays as it is, and every edit is kept in the table `run_edits`. A running collector does it at an
    operator's request; otherwise the store is changed directly.
    """
    from gpuagent_collector.exchange.changing import RunEdit

    changed = RunEdit(labels=parse_pairs(labels, "--label"), workload=name, note=note, is_excluded=is_excluded)
    if changed == RunEdit(labels={}):
        raise MisuseError("nothing to edit; give --label, --name, --note, --exclude or --include")
    with reader.open_to_change() as store:
        store.edit_runs(run_ids, changed)
    click.echo(f"{counted(len(set(run_ids)), 'run')} edited")


@click.command(
    epilog="""\b
Examples:
  collector cancel mnist-1f2e3d4c5b
  collector cancel mnist-1f2e resnet18-09
  collector cancel --experiment mnist-20260714T091500
"""
)
@click.argument("names", metavar="RUN...", nargs=-1)
@click.option("--experiment", type=NAME, metavar="NAME", help="Stop all running and queued runs of this experiment.")
@collector_options
def cancel(names: tuple[str, ...], experiment: str | None, collector: CollectorOptions) -> int:
    """Stop runs, running or queued.

    They end as cancelled. RUN is a run's identity, or a unique beginning of it. A run that has already ended is no
    error. The exit code is 1 if the agent of a run is not connected.
    """
    from gpuagent_collector.launching.client import RunsClient
    from gpuagent_collector.launching.runs import open_runs
    from gpuagent_collector.query.named_runs import find_run

    if bool(names) == bool(experiment):
        raise MisuseError("give either runs or --experiment; `collector runs` lists both")
    with collector.open() as reader:
        client = RunsClient(reader)
        # The experiment before its runs, so that it starts no other meanwhile.
        stopped = client.cancel_experiment(experiment) if experiment else 0
        if stopped:
            words = f"stopping experiment {experiment} on {counted(stopped, 'node')}; launch it again to resume it"
            click.echo(harmless(words))
        ask = asking(reader, show_sql=False)
        many = ", and --experiment NAME stops those of one experiment"
        runs = open_runs(ask, experiment) if experiment else [find_run(ask, name, otherwise=many) for name in names]
        if not runs and not stopped:
            print_error(f"no run of experiment {experiment} is running or queued")
        failed = False
        for run in runs:
            if run.has_ended:
                click.echo(harmless(f"{run.run_id} has already ended: {run.status}"))
                continue
            try:
                client.cancel(run.run_id)
                click.echo(harmless(f"stopping {run.run_id}"))
            except GpuAgentError as error:
                failed = True
                print_error(str(error))
    return int(failed)
