"""`collector backup`: a copy of a store, running or not."""

from pathlib import Path

import click

from gpuagent_collector.cli.options import ReaderOptions, reader_options
from gpuagent_collector.output.human import counted

_EXAMPLES = """\b
Examples:
  collector backup monday.duckdb
  collector backup /backup/runs.duckdb --collector gpu-head:50051
  collector backup copy.duckdb --store ducklake:lake.ducklake
"""


@click.command(epilog=_EXAMPLES)
@click.argument("file", type=click.Path(path_type=Path))
@reader_options
def command(file: Path, reader: ReaderOptions) -> None:
    """Copy a store, as it is at one moment, into a new DuckDB FILE that can take its place.

    Works while a collector runs, which goes on storing; it wants an operator's token. To go back: stop the collector,
    and serve the copy. What agents delivered after the copy is not in it, and they do not send it again.
    """
    from gpuagent_collector.exchange.backup import backup

    with reader.open() as store:
        rows = backup(store, file, _say)
    size_bytes = file.stat().st_size
    click.echo(f"{file}: {counted(rows, 'row')}, {size_bytes / 2**20:,.1f} MiB")


def _say(table: str, rows: int) -> None:
    if rows:
        click.echo(f"  {table:<20} {rows:>13,} rows", err=True)
