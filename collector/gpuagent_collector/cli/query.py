"""`collector query`: SQL from the user."""

import sys
from collections.abc import Sequence

import click

from gpuagent_collector.cli.options import ReaderOptions, format_options, reader_options
from gpuagent_collector.errors import MisuseError
from gpuagent_collector.output.formats import OutputFormat

_EXAMPLES = """\b
Examples:
  collector query sql "SHOW TABLES"
  collector query sql "DESCRIBE gpu_samples"
  collector query sql "SELECT platform, workload, count(*) AS runs FROM runs GROUP BY ALL"
  collector query sql "FROM metrics WHERE metric = ?" -p throughput --json
  collector query sql - --format csv < samples.sql > samples.csv
"""


@click.group()
def command() -> None:
    """Ask the store. Nothing can be changed by a query."""


@command.command(epilog=_EXAMPLES)
@click.argument("statement", metavar="SQL")
@click.option("-p", "--parameter", "parameters", multiple=True, help="Value of the next ? in the statement, as text.")
@reader_options
@format_options
def sql(statement: str, parameters: Sequence[str], reader: ReaderOptions, output_format: OutputFormat) -> None:
    """Run one SELECT, EXPLAIN, DESCRIBE, SUMMARIZE or SHOW TABLES in DuckDB's dialect; - reads it from standard input.

    `collector schema` says what the tables and columns mean. Times are UTC.
    """
    text = sys.stdin.read() if statement == "-" else statement
    if not text.strip():
        raise MisuseError('there is no statement; as in: collector query sql "SHOW TABLES"')
    from gpuagent_collector.output.printing import print_rows

    with reader.open() as store, store.stream(text, parameters) as answer:
        print_rows(answer.schema, answer, output_format)
        if answer.truncated:
            click.echo("the answer was cut short by the collector's limits of rows and bytes", err=True)
