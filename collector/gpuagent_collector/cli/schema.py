"""`collector schema`: what the tables and columns mean."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from difflib import get_close_matches
from typing import TYPE_CHECKING

import click

from gpuagent_collector.cli.options import format_options
from gpuagent_collector.output.formats import OutputFormat
from gpuagent_common.errors import MisuseError

if TYPE_CHECKING:
    from gpuagent_collector.schema.describe import ColumnDoc, TableDoc

# Columns of a terminal from which on unit, definition and source stand side by side.
_WIDE = 120

_EXAMPLES = """\b
Examples:
  collector schema
  collector schema gpu_samples
  collector schema runs --format markdown
"""


@click.command(epilog=_EXAMPLES)
@click.argument("table", required=False)
@format_options
def command(table: str | None, output_format: OutputFormat) -> None:
    """Print each column's type, unit, definition and source: of TABLE, or of all tables. Needs no store."""
    from gpuagent_collector.schema.describe import describe_store

    tables = describe_store()
    chosen = tables if table is None else [_find(tables, table)]
    if output_format is OutputFormat.TABLE:
        _print_for_people(chosen)
    else:
        _print_rows(chosen, output_format)


def _find(tables: Sequence["TableDoc"], name: str) -> "TableDoc":
    names = {each.name: each for each in tables}
    if name in names:
        return names[name]
    close = get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}"
    raise MisuseError(f"the store has no table {name}; {hint}")


def _print_rows(tables: Sequence["TableDoc"], output_format: OutputFormat) -> None:
    import pyarrow as pa

    from gpuagent_collector.output.printing import print_table

    rows = [asdict(column) for table in tables for column in table.columns]
    names = rows[0]
    print_table(pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in names}), output_format)


def _print_for_people(tables: Sequence["TableDoc"]) -> None:
    from rich.text import Text

    from gpuagent_collector.output.terminal import plain_console, plain_table

    console = plain_console(sys.stdout)
    wide = console.width >= _WIDE
    for table in tables:
        console.print(Text.assemble((table.name, "bold"), f": {table.definition}"))
        columns = plain_table()
        for title in ("column", "type"):
            columns.add_column(title, no_wrap=True)
        for title in ("unit", "definition", "source") if wide else ("meaning",):
            columns.add_column(title, overflow="fold")
        for each in table.columns:
            docs = (each.unit, each.definition, each.source) if wide else (_in_one_text(each),)
            columns.add_row(each.column, each.type, *docs)
        console.print(columns, "")


def _in_one_text(column: "ColumnDoc") -> str:
    """Return what is known of a column for terminals that are too narrow for all of it side by side."""
    unit = f" [{column.unit}]" if column.unit else ""
    return f"{column.definition}{unit} ({column.source})"
