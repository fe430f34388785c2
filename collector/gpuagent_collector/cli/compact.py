"""`collector compact`: keep a store small and fast."""

from typing import TYPE_CHECKING

import click

from gpuagent_collector.cli.options import changed_store_option, retention_options
from gpuagent_collector.cli.printing import print_error
from gpuagent_collector.present.human import notation
from gpuagent_common.text import counted

if TYPE_CHECKING:
    from gpuagent_collector.store import Store
    from gpuagent_collector.store.retention import Retention

_EXAMPLES = """\b
Examples:
  collector compact --store 'ducklake:postgres:host=db1 dbname=lake'
  collector compact --keep-raw 7d --keep-seconds 30d --keep 52w
  collector compact --keep 90d
"""


@click.command(epilog=_EXAMPLES)
@retention_options
@click.option("--trust-clock", is_flag=True, help="Use this machine's clock, even if samples disagree with it.")
@changed_store_option
def command(retention: "Retention | None", trust_clock: bool, store_name: str) -> None:
    """Sort a store's samples, merge its files, remove old samples.

    A store in PostgreSQL can be compacted while collectors write it: run this every hour, one at a time. Files that
    nobody reads any more are deleted a day later. A running collector thins out and sorts its own store: `collector
    serve --keep-raw`. A file of which a quarter is free is replaced by a smaller copy, which needs room beside it.

    Age is measured by the clock only if samples agree with it, so that a clock that is ahead removes nothing: the
    store must have samples of the last hour, and of the same hour a day ago. TIME is such as 12h, 7d or 52w. Thinned
    rows keep mean, minimum, maximum and number of readings.
    """
    from gpuagent_collector.exchange.backup import shrink
    from gpuagent_collector.store import Kind, Store
    from gpuagent_collector.times import utc_now

    with Store.open(store_name, create=False) as store:
        if retention:
            _retain(store, retention, trust_clock=trust_clock)
        for _ in store.sort(utc_now()):
            pass
        store.tidy()
        if store.spec.kind is Kind.FILE:
            store.checkpoint()
        files = store.files()
    if files is None:
        if lacking := shrink(store.spec):
            print_error(f"the file keeps its free space, because a copy would lack {lacking}")
        count, size_bytes = 1, store.spec.path.stat().st_size
    else:
        count, size_bytes = files.count, files.size_bytes
    size = notation([size_bytes], "bytes").write(size_bytes)
    click.echo(f"{store.spec}: compacted, in {counted(count, 'file')} of {size}")


def _retain(store: "Store", retention: "Retention", *, trust_clock: bool) -> None:
    """Thin out and remove old samples, and print how many."""
    from gpuagent_collector.times import utc_now

    now = utc_now()
    time = now if trust_clock else store.trusted_now(now)
    if time < now:
        print_error(
            f"samples disagree with the clock ({now:%Y-%m-%d %H:%M} UTC); using the time of the last ones, "
            f"{time:%Y-%m-%d %H:%M}. If the clock is right: --trust-clock"
        )
    old = thinned = removed = 0
    for done in store.retain(retention, time):
        if done.added:
            old, thinned = old + done.removed, thinned + done.added
        else:
            removed += done.removed
    if retention.rolled:
        click.echo(f"{store.spec}: {counted(old, 'row')} thinned out to {thinned:,}")
    if retention.everything is not None:
        click.echo(f"{store.spec}: {counted(removed, 'row')} removed")
