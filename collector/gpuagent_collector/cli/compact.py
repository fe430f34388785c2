"""`collector compact`: keeps a store small and quick."""

from typing import TYPE_CHECKING

import click

from gpuagent_collector.cli.keeping import retention_options
from gpuagent_collector.cli.writing import changed_store_option
from gpuagent_collector.output.human import counted, notation

if TYPE_CHECKING:
    from gpuagent_collector.store import Store
    from gpuagent_collector.store.retention import Retention

_EXAMPLES = """\b
Examples:
  collector compact --store 'ducklake:postgres:host=db1 dbname=lake'
  collector compact --store 'ducklake:postgres:host=db1 dbname=lake' --keep-raw 7d --keep-seconds 30d --keep 52w
  collector compact --keep 90d
"""


@click.command(epilog=_EXAMPLES)
@retention_options
@changed_store_option
def command(retention: "Retention", store_name: str) -> None:
    """Fold together what many small commits left behind, and thin out or remove what is old.

    A store in PostgreSQL is compacted while collectors write it; run this there every hour, once at a time. What nobody
    reads any more is deleted a day later. A running collector thins out a store of its own: `collector serve
    --keep-raw`.
    """
    from gpuagent_collector.exchange.transaction import open_existing

    with open_existing(store_name) as store:
        if retention:
            _retain(store, retention)
        store.tidy()
        _announce(store)


def _retain(store: "Store", retention: "Retention") -> None:
    from gpuagent_collector.times import utc_now

    old = thinned = removed = 0
    for done in store.retain(retention, utc_now()):
        if done.added:
            old, thinned = old + done.removed, thinned + done.added
        else:
            removed += done.removed
    if retention.rolled:
        click.echo(f"{store.spec}: {counted(old, 'row')} thinned out to {thinned:,}")
    if retention.everything is not None:
        click.echo(f"{store.spec}: {counted(removed, 'row')} removed")


def _announce(store: "Store") -> None:
    files = store.files()
    if files is None:
        click.echo(f"{store.spec}: compacted")
        return
    size = notation([files.size_bytes], "bytes").write(files.size_bytes)
    click.echo(f"{store.spec}: compacted, in {counted(files.count, 'file')} of {size}")
