"""`collector delete`: remove runs or a node."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gpuagent_collector.cli.options import changed_store_option
from gpuagent_collector.cli.printing import print_rows_of
from gpuagent_common.errors import MisuseError
from gpuagent_common.text import counted

if TYPE_CHECKING:
    import duckdb

    from gpuagent_collector.exchange.delete import Removal

_EXAMPLES = """\b
Examples:
  collector delete --run 01k0r9 --run 01k0ra
  collector delete --experiment first-try --yes
  collector delete --node gpu-07 --store results.duckdb
"""


@click.command(epilog=_EXAMPLES)
@click.option("--run", "run_ids", multiple=True, metavar="ID", help="Remove this run; repeatable.")
@click.option("--experiment", metavar="NAME", help="Remove all runs of this experiment.")
@click.option("--node", metavar="NAME", help="Remove this node (hostname or UUID) with its data and runs.")
@click.option("--yes", is_flag=True, help="Remove without confirmation.")
@changed_store_option
def command(run_ids: Sequence[str], experiment: str | None, node: str | None, yes: bool, store_name: str) -> None:
    """Remove runs or a node.

    Prints the number of rows first. A run's samples on its nodes are removed with it, except for times in which
    another run was there. Let agents deliver first: data of a removed run that they still hold is stored on delivery.
    """
    from gpuagent_collector.store import Store

    if sum(map(bool, (run_ids, experiment, node))) != 1:
        raise MisuseError("give one of --run, --experiment and --node")
    with Store.open(store_name, create=False) as store, store.transaction() as connection:
        removal = _removal(connection, run_ids, experiment, node)
        for table, count in removal.count().items():
            print_rows_of(table, count)
        still = removal.open_runs()
        runs = counted(len(removal.run_ids), "run")
        click.echo(f"  {runs}{f', {still:,} of which not ended' if still else ''}", err=True)
        if not yes:
            if not sys.stdin.isatty():
                raise MisuseError("nothing was removed; repeat the command with --yes to remove this")
            click.confirm("Remove all this for good?", abort=True, err=True)
        rows = sum(removal.remove().values())
    click.echo(f"{store.spec}: {counted(rows, 'row')} removed")


def _removal(
    connection: "duckdb.DuckDBPyConnection", run_ids: Sequence[str], experiment: str | None, node: str | None
) -> "Removal":
    from gpuagent_collector.exchange.belongings import RunFilter
    from gpuagent_collector.exchange.delete import Removal

    if node:
        return Removal.of_node(connection, node)
    return Removal.of_runs(connection, RunFilter(run_ids=run_ids, experiments=[experiment] if experiment else ()))
