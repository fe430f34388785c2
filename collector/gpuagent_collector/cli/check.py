"""`collector check`: whether a store is sound."""

from typing import TYPE_CHECKING

import click

from gpuagent_collector.cli.options import ReaderOptions, reader_options
from gpuagent_collector.output.human import counted
from gpuagent_collector.output.text import harmless

if TYPE_CHECKING:
    from gpuagent_collector.exchange.checks import Verdict

_EXAMPLES = """\b
Examples:
  collector check
  collector check --store results.duckdb
  collector check --store backup.duckdb && rm backup-of-last-week.duckdb
"""


@click.command(epilog=_EXAMPLES)
@reader_options
def command(reader: ReaderOptions) -> int:
    """Read a store to the last row, and say whether it is sound.

    Every block is compared with its checksum; no row may be there twice, sessions and marks must fit together. Rows of
    runs or sessions that nothing describes are told, but can come from `collector delete`. Exits with 1 when something
    is wrong. Changes nothing; works while a collector runs. A limited token has no more checked than it shows.
    """
    from gpuagent_collector.exchange.checks import check

    with reader.open() as store:
        verdict = check(store, _say)
        _announce(verdict, f"what {store.source} shows ({store.part})" if store.part else store.source)
    return 0 if verdict.is_sound else 1


def _say(table: str, rows: int) -> None:
    if rows:
        click.echo(f"  {table:<20} {rows:>13,} rows", err=True)


def _announce(verdict: "Verdict", source: str) -> None:
    for remark in verdict.remarks:
        click.echo(f"{'!' if remark.is_damage else '-'} {harmless(remark.text)}")
    read = f"schema {verdict.version}, {counted(verdict.rows, 'row')} in {verdict.tables} tables"
    if verdict.is_sound:
        click.echo(f"{source} is sound: {read}, all read")
    else:
        click.echo(f"{source} is damaged: {read} could be read; keep it, and go back to a backup")
