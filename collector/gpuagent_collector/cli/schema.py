"""`collector schema`: print the meaning of tables and columns."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

import click

from gpuagent_collector.cli.options import format_options
from gpuagent_collector.cli.selection import is_metric
from gpuagent_collector.present.formats import OutputFormat
from gpuagent_common.errors import MisuseError

if TYPE_CHECKING:
    from gpuagent_collector.schema.describe import TableDoc

# Columns of a terminal from which unit, definition and source have columns of their own.
_WIDE = 120

# What is asked for most; then the other samples, and the rest by name.
_FIRST = (
    *("runs", "metrics", "results", "steps", "run_events", "nodes", "devices"),
    *("host_samples", "process_samples", "gpu_samples"),
)
_ROLLUPS = "*_rollups"

_EXAMPLES = """\b
Examples:
  collector schema
  collector schema gpu_samples
  collector schema runs --format markdown
  collector schema --metrics
"""


@click.command(epilog=_EXAMPLES)
@click.argument("table", required=False)
@click.option("--metrics", is_flag=True, help="List the metrics of runs, with definition and source.")
@click.option("--all", "everything", is_flag=True, help="List the tables that are asked for rarely too.")
@format_options
def command(table: str | None, output_format: OutputFormat, metrics: bool, everything: bool) -> None:
    """Print the meaning of tables and columns.

    Lists all tables and views; of TABLE, and of all in other formats, type, unit, definition and source of each column;
    with --metrics of that metric, or of all. Needs no store.
    """
    if metrics:
        _print_metrics(table, output_format)
        return
    from gpuagent_collector.schema.describe import describe_store

    tables = describe_store()
    chosen = [each for each in tables if table in (None, each.name)]
    if not chosen:
        close = get_close_matches(str(table), [each.name for each in tables], n=1)
        hint = f"did you mean {close[0]}?" if close else "`collector schema` lists all tables"
        if Path(str(table)).is_file():
            hint = "it takes none, since all have the same tables: `collector schema`"
        raise MisuseError(f"the store has no table {table}; {hint}")
    if output_format is OutputFormat.TABLE:
        if table is None:
            _print_index(tables, everything=everything)
        else:
            _print_for_people(chosen[0])
        return
    import pyarrow as pa

    from gpuagent_collector.present.data import print_table

    rows = [asdict(column) for each in chosen for column in each.columns]
    print_table(pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in rows[0]}), output_format)


def _print_metrics(name: str | None, output_format: OutputFormat) -> None:
    import pyarrow as pa

    from gpuagent_collector.metrics.definitions import define, define_measured
    from gpuagent_collector.present.data import print_table

    known = [*define(), *define_measured()]
    rows = [asdict(one) for one in known if name in (None, one.metric)]
    if not rows:
        if ":" not in str(name) and is_metric(str(name)):  # a statistic follows a colon
            raise MisuseError(f"{name} is computed with --prices from stored figures: docs/cost.md")
        close = get_close_matches(str(name), [one.metric for one in known], n=1)
        raise MisuseError(f"no metric is named {name}" + (f"; did you mean {close[0]}?" if close else ""))
    # In a terminal a list of all has room for names alone.
    of_list = ("metric", "unit", "title") if name is None and output_format is OutputFormat.TABLE else rows[0]
    print_table(pa.table({column: [row[column] for row in rows] for column in of_list}), output_format)
    if name is None and output_format is OutputFormat.TABLE:
        click.echo("\nDefinition and source of one: collector schema --metrics NAME; of all: --format markdown")
        click.echo("Costs, such as cost_per_million_items_usd, are computed with --prices: docs/cost.md")


def _print_index(tables: Sequence["TableDoc"], *, everything: bool) -> None:
    """Print a line for each table, with the first sentence of its definition, or what of it has room."""
    from gpuagent_collector.present.terminal import GAP, plain_console, plain_table

    console, names = plain_console(sys.stdout), max(len(each.name) for each in tables)
    index = plain_table()
    index.add_column("table", no_wrap=True, min_width=names)
    index.add_column("rows", no_wrap=True)
    rows = {table.name: table.definition.partition(". ")[0].removesuffix(".") for table in tables}
    first = [name for name in _FIRST if name in rows]
    samples = [name for name in sorted(rows) if name.endswith("_samples") and name not in first]
    rest = [name for name in sorted(rows) if not name.endswith("_rollups") and name not in (*first, *samples)]
    rows[_ROLLUPS] = "Each table of samples, thinned out to one row a second or minute"
    for name in (*first, *samples, _ROLLUPS, *(rest if everything else ())):
        index.add_row(name, shorten(rows[name], max(console.width - names - GAP, 1), placeholder=" …"))
    console.print(index)
    more = "" if everything else f"--all lists {len(rest)} more tables. "
    click.echo(f"{more}The columns of one: collector schema NAME")
    click.echo("Of all: --format markdown. Figures of runs: --metrics")


def _print_for_people(table: "TableDoc") -> None:
    from rich.text import Text

    from gpuagent_collector.present.terminal import plain_console, plain_table

    console = plain_console(sys.stdout)
    wide = console.width >= _WIDE
    console.print(Text.assemble((table.name, "bold"), f": {table.definition}"))
    columns = plain_table()
    for title in ("column", "type"):
        columns.add_column(title, no_wrap=True)
    for title in ("unit", "definition", "source") if wide else ("meaning",):
        columns.add_column(title, overflow="fold")
    for each in table.columns:
        unit = f" [{each.unit}]" if each.unit else ""
        docs = (each.unit, each.definition, each.source) if wide else (f"{each.definition}{unit} ({each.source})",)
        columns.add_row(each.column, each.type, *docs)
    console.print(columns, "")
