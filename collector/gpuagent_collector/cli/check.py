"""`collector check`: the soundness of a store."""

import click

from gpuagent_collector.cli.options import ReaderOptions, reader_options
from gpuagent_collector.cli.printing import print_rows_of
from gpuagent_common.text import counted, harmless

_EXAMPLES = """\b
Examples:
  collector check
  collector check --store results.duckdb
  collector check --store backup.duckdb && rm backup-of-last-week.duckdb
"""


@click.command(epilog=_EXAMPLES)
@reader_options
def command(reader: ReaderOptions) -> int:
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
        click.echo(f"{source} is sound: {read}, all read")
    else:
        click.echo(f"{source} is damaged: {read} could be read; keep it, and restore a backup")
    return 0 if verdict.is_sound else 1
