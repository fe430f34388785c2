"""`collector backup`: a copy of a store, also while a collector runs."""

from pathlib import Path

import click

from gpuagent_collector.cli.options import ReaderOptions, reader_options
from gpuagent_collector.cli.printing import print_error, print_rows_of
from gpuagent_common.text import counted

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
