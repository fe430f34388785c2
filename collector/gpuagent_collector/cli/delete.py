"""`collector delete`: removes runs or nodes, on request."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gpuagent_collector.cli.writing import changed_store_option
from gpuagent_collector.output.human import counted
from gpuagent_common.errors import MisuseError

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
@click.option("--run", "run_ids", multiple=True, metavar="ID", help="This run; may be given several times.")
@click.option("--experiment", metavar="NAME", help="All runs of this experiment.")
@click.option(
    "--node", metavar="NAME", help="This node, by hostname or UUID: all that came from it, all runs started there."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@changed_store_option
def command(run_ids: Sequence[str], experiment: str | None, node: str | None, yes: bool, store_name: str) -> None:
    """Remove runs, or a node, with everything that belongs to them, for good; says first how much it is.

    With a run go the samples of its nodes in its time, but for the time in which another run was there. Let agents
    deliver first: what they still hold of a removed run is stored when they do.
    """
    from gpuagent_collector.exchange.transaction import open_existing, transaction

    if sum(map(bool, (run_ids, experiment, node))) != 1:
        raise MisuseError("name what to remove, by one of --run, --experiment and --node")
    with open_existing(store_name) as store, transaction(store) as connection:
        removal = _removal(connection, run_ids, experiment, node)
        _announce(removal)
        if not yes:
            _ask()
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


def _announce(removal: "Removal") -> None:
    for table, rows in removal.count().items():
        click.echo(f"  {table:<20} {rows:>13,} rows", err=True)
    still = removal.open_runs()
    runs = counted(len(removal.run_ids), "run")
    click.echo(f"  {runs}{f', {still:,} of which not ended' if still else ''}", err=True)


def _ask() -> None:
    if not sys.stdin.isatty():
        raise MisuseError("nothing was removed; repeat it with --yes to remove this")
    click.confirm("Remove all this for good?", abort=True, err=True)
