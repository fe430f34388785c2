"""A snapshot on standard output, in any of the formats."""

import json
import sys
from dataclasses import asdict
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.text import Text

from gpuagent_collector.output.formats import OutputFormat
from gpuagent_collector.output.printing import print_table
from gpuagent_collector.output.terminal import plain_console, plain_table
from gpuagent_collector.output.values import as_json
from gpuagent_collector.watch.columns import TREND_COLUMN, cell, fitting
from gpuagent_collector.watch.snapshot import Snapshot
from gpuagent_collector.watch.view import Listing, View, select, summary


def print_snapshot(snapshot: Snapshot, output_format: OutputFormat) -> None:
    """Print everything that was read as JSON, or the lists of the live view in another format."""
    if output_format is OutputFormat.JSON:
        fields: dict[str, Any] = asdict(snapshot) | {"taken_at": f"{snapshot.taken_at.isoformat()}Z"}
        sys.stdout.write(f"{json.dumps(json.loads(as_json(fields)), indent=2)}\n")
        return
    console = plain_console(sys.stdout)
    separator = ""
    if output_format is OutputFormat.TABLE:
        console.print(summary_line(snapshot), soft_wrap=True)
        separator = "\n"
    for listing in select(snapshot, View()).values():
        sys.stdout.write(separator)
        separator = "\n"
        if output_format is OutputFormat.TABLE:
            _print_list(listing, console)
        else:
            values = {
                column.title: [
                    column.key(row) if (output_format is OutputFormat.CSV) else column.show(row) for row in listing.rows
                ]
                for column in listing.columns
                if column is not TREND_COLUMN
            }
            print_table(pa.table(values), output_format)
        sys.stdout.flush()


def summary_line(snapshot: Snapshot) -> Text:
    """Return a snapshot in one line."""
    return Text(" · ").join(Text(text, style=style or "") for text, style in summary(snapshot))


def _print_list(listing: Listing[Any], console: Console) -> None:
    """Print a list with as many of the columns as the terminal has room for."""
    if not listing.rows:
        console.print(Text(f"no {listing.row_name}", style="dim"))
        return
    table = plain_table()
    chosen = fitting(listing.columns, listing.rows, console.width)
    for column, width in chosen:
        table.add_column(column.title, justify=column.alignment, width=width, no_wrap=True)
    for row in listing.rows:
        table.add_row(*(cell(column, row, width) for column, width in chosen))
    console.print(table)
