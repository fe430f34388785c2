"""The commands that keep a store: `collector backup`, `restore`, `check`, `compact` and `export`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuagent_collector.cli.options import (
    ReaderOptions,
    ReadingCommand,
    changed_store_option,
    reader_options,
    retention_options,
)
from gpuagent_collector.cli.printing import print_error, print_rows_of
from gpuagent_common.cli import NAME
from gpuagent_common.text import counted, harmless

if TYPE_CHECKING:
    from gpuagent_collector.exchange.export import TableEntry
    from gpuagent_collector.store import Store
    from gpuagent_collector.store.retention import Retention


@click.command(
    epilog="""\b
Examples:
  collector backup monday.duckdb
  collector backup /backup/runs.duckdb --collector gpu-head:50051
  collector backup copy.duckdb --store ducklake:lake.ducklake
"""
)
@click.argument("file", type=click.Path(path_type=Path))
@reader_options
def backup(file: Path, reader: ReaderOptions) -> None:
    """Copy a store into a new DuckDB FILE.

    The copy has the state of one moment, and can replace the store. A running collector continues to store; copying it
    needs an operator's token. To go back: stop the collector, and serve the copy. Data delivered after the copy is not
    in it, and agents do not send it again.
    """
    from gpuagent_collector.exchange.backup import backup

    with reader.open() as store:
        copied = backup(store, file, print_rows_of)
    if copied.left_out:
        print_error(f"the copy lacks {copied.lacking}; keep the statements that make them")
    size_bytes = file.stat().st_size
    click.echo(f"{file}: {counted(copied.rows, 'row')}, {size_bytes / 2**20:,.1f} MiB")


@click.command(
    epilog="""\b
Examples:
  collector restore backups/runs-20261122T200000Z.duckdb
  collector restore monday.duckdb --store /var/lib/gpuagent/runs.duckdb
"""
)
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@changed_store_option
def restore(file: Path, store_name: str) -> None:
    """Put a backup in the place of a store.

    Stop the collector first. FILE is read and checked, then copied; the store that was there is kept under another
    name. Data delivered after the backup is not in it, and agents do not send it again: export it from the kept store
    and import it.
    """
    from gpuagent_collector.exchange.backup import restore
    from gpuagent_collector.store import StoreSpec
    from gpuagent_collector.times import utc_now

    spec = StoreSpec.parse(store_name)
    replaced = restore(file, spec, utc_now(), print_rows_of)
    if replaced:
        print_error(f"the store that was there is now {replaced}")
    click.echo(f"{spec}: restored from {file}")


@click.command(
    cls=ReadingCommand,
    epilog="""\b
Examples:
  collector check
  collector check results.duckdb
  collector check backup.duckdb && rm backup-of-last-week.duckdb
""",
)
@reader_options
def check(reader: ReaderOptions) -> int:
    """Read a whole store and report damage.

    Checks the checksum of every block, that no row is duplicated, and that sessions and marks are consistent. Rows of
    runs or sessions without a description are listed; `collector delete` can leave some. The exit code is 1 if the
    store is damaged. Nothing is changed; works while a collector runs. A limited token checks only its part.
    """
    from gpuagent_collector.exchange.checks import check

    with reader.open() as store:
        verdict = check(store, print_rows_of)
        source = f"the part of {store.source} that the token shows ({store.part})" if store.part else store.source
    for remark in verdict.remarks:
        click.echo(f"{'!' if remark.is_damage else '-'} {harmless(remark.text)}")
    read = f"schema {verdict.version}, {counted(verdict.rows, 'row')} in {verdict.tables} tables"
    if verdict.is_sound:
        click.echo(f"sound: {source}, {read}, all read")
    else:
        click.echo(f"damaged: {source}, of which {read} could be read; keep it, and restore a backup")
    return 0 if verdict.is_sound else 1


@click.command(
    epilog="""\b
Examples:
  collector compact --store 'ducklake:postgres:host=db1 dbname=lake'
  collector compact --keep-raw 7d --keep-seconds 30d --keep 52w
  collector compact --keep 90d
"""
)
@retention_options
@click.option("--trust-clock", is_flag=True, help="Use this machine's clock, even if samples disagree with it.")
@changed_store_option
def compact(retention: "Retention | None", trust_clock: bool, store_name: str) -> None:
    """Sort a store's samples, merge its files, remove old samples.

    A store in PostgreSQL can be compacted while collectors write it: run this every hour, one at a time. Files that
    nobody reads any more are deleted a day later. A running collector thins out and sorts its own store: `collector
    serve --keep-raw`. A file of which a quarter is free is replaced by a smaller copy, which needs room beside it.

    Age is measured by the clock only if samples agree with it, so that a clock that is ahead removes nothing: the
    store must have samples of the last hour, and of the same hour a day ago. TIME is such as 12h, 7d or 52w. Thinned
    rows keep mean, minimum, maximum and number of readings.
    """
    from gpuagent_collector.exchange.backup import shrink
    from gpuagent_collector.present.human import notation
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


@click.command(
    epilog="""\b
Examples:
  collector export --parquet satori-july
  collector export --parquet paper --experiment containers --experiment memory
  collector export --parquet week-31 --platform satori --since 2026-07-27
"""
)
@click.option(
    "--parquet",
    "folder",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="New folder for a Parquet file per table, and manifest.json.",
)
@click.option("--run", "run_ids", multiple=True, metavar="ID", help="Only this run; repeatable.")
@click.option(
    "--experiment",
    "experiments",
    type=NAME,
    multiple=True,
    metavar="NAME",
    help="Only runs of this experiment; repeatable.",
)
@click.option(
    "--platform", "platforms", type=NAME, multiple=True, metavar="NAME", help="Only runs on this platform; repeatable."
)
@click.option(
    "--since",
    metavar="DATE[THH:MM]",
    type=click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"]),
    help="Only runs queued at this time (UTC) or later.",
)
@reader_options
def export(folder: Path, reader: ReaderOptions, **filters: Any) -> None:
    """Write the store, or chosen runs, as Parquet files.

    `collector import` merges the folder into another store. Filters choose the runs that pass all of them, with steps,
    results, figures, and all samples of their nodes from a minute before each run to a minute after it. Without
    filters everything is exported, or all that a limited token shows. Works while a collector runs; unfinished runs are
    exported as far as they have arrived.
    """
    from gpuagent_collector.exchange.export import export
    from gpuagent_collector.exchange.tables import RunFilter

    chosen = RunFilter(**filters)

    def say(table: str, entry: "TableEntry") -> None:
        if entry.rows:
            click.echo(f"  {harmless(table):<20} {entry.rows:>13,} rows {_size(entry):>9}", err=True)

    with reader.open() as store:
        manifest = export(store, folder, chosen if chosen != RunFilter() else None, say)
    rows, size = sum(entry.rows for entry in manifest.tables.values()), _size(*manifest.tables.values())
    click.echo(f"{folder}: {harmless(manifest.chosen)}, {rows:,} rows, {size}")


def _size(*entries: "TableEntry") -> str:

    from gpuagent_collector.present.human import notation

    size_bytes = sum(entry.size_bytes for entry in entries)
    return notation([size_bytes], "bytes").write(size_bytes)
