"""Lines on stderr that several commands print."""

import click

from gpuagent_common.text import harmless


def print_error(words: str) -> None:
    """Print a line on stderr, escaped, with the program's name before it."""
    click.echo(f"collector: {harmless(words)}", err=True)


def print_rows_of(table: str, rows: int) -> None:
    """Print a table's number of rows on stderr, unless it has none."""
    if rows:
        click.echo(f"  {harmless(table):<20} {rows:>13,} rows", err=True)
