"""`collector delete`: remove runs or a node."""

import sys
from collections.abc import Sequence

import click

from gpuagent_collector.cli.options import ReaderOptions, reader_options
from gpuagent_collector.cli.printing import print_rows_of
from gpuagent_common.cli import NAME, single
from gpuagent_common.errors import MisuseError
from gpuagent_common.text import counted, harmless

_EXAMPLES = """\b
Examples:
  collector delete --run 01k0r9 --run 01k0ra
  collector delete --experiment first-try --yes
  collector delete --node gpu-07 --store results.duckdb
"""


@click.command(epilog=_EXAMPLES)
@click.option("--run", "run_ids", multiple=True, metavar="ID", help="Remove this run; repeatable.")
@click.option("--experiment", type=NAME, metavar="NAME", help="Remove all runs of this experiment.")
@click.option(
    "--node",
    type=NAME,
    metavar="NAME",
    multiple=True,
    callback=single,
    help="Remove this node (hostname or UUID) with its data and runs.",
)
@click.option("--yes", is_flag=True, help="Remove without confirmation.")
@reader_options
def command(run_ids: Sequence[str], experiment: str | None, node: str | None, yes: bool, reader: ReaderOptions) -> None:
    """Remove runs or a node.

    A running collector does it at an operator's request; otherwise the store is changed directly. Prints the number of
    rows first, and the hosts if there are several: two machines with one identity are one node. A run's samples on its
    nodes are removed with it, except for times in which another run was there. Let agents deliver first: data of a
    removed run that they still hold is stored on delivery.
    """
    from gpuagent_collector.exchange.delete import Deletion

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
