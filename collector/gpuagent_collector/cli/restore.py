"""`collector restore`: put a backup in the place of a store."""

from pathlib import Path

import click

from gpuagent_collector.cli.options import changed_store_option
from gpuagent_collector.cli.printing import print_error, print_rows_of

_EXAMPLES = """\b
Examples:
  collector restore backups/runs-20261122T200000Z.duckdb
  collector restore monday.duckdb --store /var/lib/gpuagent/runs.duckdb
"""


@click.command(epilog=_EXAMPLES)
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@changed_store_option
def command(file: Path, store_name: str) -> None:
    """Put a backup in the place of a store.

    Stop the collector first. FILE is read and checked, then copied; the store that was there is kept under another
    name. Data delivered after the backup is not in it, and agents do not send it again: export it from the kept store
    and import it.
    """
    from gpuagent_collector.exchange.restore import restore
    from gpuagent_collector.store import StoreSpec
    from gpuagent_collector.times import utc_now

    spec = StoreSpec.parse(store_name)
    replaced = restore(file, spec, utc_now(), print_rows_of)
    if replaced:
        print_error(f"the store that was there is now {replaced}")
    click.echo(f"{spec}: restored from {file}")
