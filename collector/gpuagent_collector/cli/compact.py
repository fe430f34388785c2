"""`collector compact`: keeps a store small and quick."""

from typing import TYPE_CHECKING

import click

from gpuagent_collector.cli.keeping import retention_options
from gpuagent_collector.cli.writing import changed_store_option
from gpuagent_collector.output.human import counted, notation

if TYPE_CHECKING:
    from datetime import datetime

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
@click.option(
    "--trust-clock",
    is_flag=True,
    help="Tell what is old by this machine's clock, even where no samples of the last hour and of a day ago agree.",
)
@changed_store_option
def command(retention: "Retention", trust_clock: bool, store_name: str) -> None:
    """Fold together what many small commits left behind, and thin out or remove what is old.

    A store in PostgreSQL is compacted while collectors write it; run this there every hour, once at a time. What nobody
    reads any more is deleted a day later. A running collector thins out a store of its own: `collector serve
    --keep-raw`.

    What is old is told by the clock only as far as samples agree with it, so that a clock that is ahead removes
    nothing: there must be some of the last hour, and of the same hour a day ago.
    """
    from gpuagent_collector.exchange.transaction import open_existing
    from gpuagent_collector.times import utc_now

    with open_existing(store_name) as store:
        if retention:
            _retain(store, retention, utc_now() if trust_clock else _believed(store))
        store.tidy()
        _announce(store)


def _believed(store: "Store") -> "datetime":
    from gpuagent_collector.times import utc_now

    now = utc_now()
    time = store.trusted_now(now)
    if time < now:
        click.echo(
            f"collector: the clock here says {now:%Y-%m-%d %H:%M} UTC, and samples do not agree; what is old is told "
            f"from {time:%Y-%m-%d %H:%M}, when the last were made. If the clock is right: --trust-clock",
            err=True,
        )
    return time


def _retain(store: "Store", retention: "Retention", now: "datetime") -> None:
    old = thinned = removed = 0
    for done in store.retain(retention, now):
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
