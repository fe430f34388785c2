"""`collector export`: a store, or chosen runs of it, as Parquet files."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuagent_collector.cli.options import ReaderOptions, reader_options
from gpuagent_common.cli import NAME
from gpuagent_common.text import harmless

if TYPE_CHECKING:
    from gpuagent_collector.exchange.manifest import TableEntry

_EXAMPLES = """\b
Examples:
  collector export --parquet satori-july
  collector export --parquet paper --experiment containers --experiment memory
  collector export --parquet week-31 --platform satori --since 2026-07-27
"""


@click.command(epilog=_EXAMPLES)
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
def command(
    folder: Path,
    run_ids: Sequence[str],
    experiments: Sequence[str],
    platforms: Sequence[str],
    since: datetime | None,
    reader: ReaderOptions,
) -> None:
    """Write the store, or chosen runs, as Parquet files.

    `collector import` merges the folder into another store. Filters choose the runs that pass all of them, with steps,
    results, figures, and all samples of their nodes from a minute before each run to a minute after it. Without
    filters everything is exported, or all that a limited token shows. Works while a collector runs; unfinished runs are
    exported as far as they have arrived.
    """
    from gpuagent_collector.exchange.belongings import RunFilter
    from gpuagent_collector.exchange.export import export

    chosen = RunFilter(run_ids=run_ids, experiments=experiments, platforms=platforms, since=since)
    with reader.open() as store:
        manifest = export(store, folder, chosen if chosen != RunFilter() else None, _say)
    rows, size = sum(entry.rows for entry in manifest.tables.values()), _size(*manifest.tables.values())
    click.echo(f"{folder}: {harmless(manifest.chosen)}, {rows:,} rows, {size}")


def _say(table: str, entry: "TableEntry") -> None:
    if entry.rows:
        click.echo(f"  {harmless(table):<20} {entry.rows:>13,} rows {_size(entry):>9}", err=True)


def _size(*entries: "TableEntry") -> str:
    from gpuagent_collector.present.human import notation

    size_bytes = sum(entry.size_bytes for entry in entries)
    return notation([size_bytes], "bytes").write(size_bytes)
