"""Prints rows in any of the formats."""

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TextIO

import pyarrow as pa

from gpuagent_collector.output.as_csv import write_csv
from gpuagent_collector.output.as_json import write_json
from gpuagent_collector.output.as_markdown import write_markdown
from gpuagent_collector.output.as_table import write_table
from gpuagent_collector.output.formats import OutputFormat

Writer = Callable[[pa.Schema, Iterable[pa.RecordBatch], TextIO], None]

WRITERS: Mapping[OutputFormat, Writer] = {
    OutputFormat.TABLE: write_table,
    OutputFormat.JSON: write_json,
    OutputFormat.CSV: write_csv,
    OutputFormat.MARKDOWN: write_markdown,
}


def print_rows(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], output_format: OutputFormat, out: TextIO | None = None
) -> None:
    """Print rows as they come; `out` None: standard output."""
    WRITERS[output_format](schema, batches, out or sys.stdout)


def print_table(table: pa.Table, output_format: OutputFormat, out: TextIO | None = None) -> None:
    """Print a table; `out` None: standard output."""
    print_rows(table.schema, table.to_batches(), output_format, out)
