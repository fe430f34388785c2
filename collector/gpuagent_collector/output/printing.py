"""Writers of rows: CSV, JSON, Markdown, and tables for people."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TextIO

import pyarrow as pa
from pyarrow import csv

from gpuagent_collector.output.as_table import write_table
from gpuagent_collector.output.formats import OutputFormat
from gpuagent_collector.output.values import (
    Column,
    as_json,
    cell,
    is_number,
    is_simple,
    iso_times,
    plain_column,
    plain_rows,
    unique_names,
)
from gpuagent_common.text import harmless, is_dangerous

Writer = Callable[[pa.Schema, Iterable[pa.RecordBatch], TextIO], None]


def write_csv(schema: pa.Schema, batches: Iterable[pa.RecordBatch], out: TextIO) -> None:
    """Write CSV with a header line, batch by batch: NULL is empty, an empty text is two quotes.

    Texts are exact in files and pipes; control characters are escaped on terminals.
    """
    inert = out.isatty()
    names = unique_names(map(harmless, schema.names) if inert else schema.names)
    kinds = [kind if _is_writable(kind, inert=inert) else pa.string() for kind in schema.types]
    written = pa.schema(list(zip(names, kinds, strict=True)))
    out.flush()
    with csv.CSVWriter(out.buffer, written) as writer:
        for batch in batches:
            columns = [_writable(column, inert=inert) for column in batch.columns]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=written))


def _writable(column: Column, *, inert: bool) -> Column:
    """Return the column as one that Arrow's CSV writer takes."""
    if pa.types.is_timestamp(column.type):
        return iso_times(column)
    if _is_writable(column.type, inert=inert):
        return column
    values = plain_column(column)
    texts = (value if isinstance(value, str | None) else as_json(value) for value in values)
    return pa.array([harmless(text) if inert and text else text for text in texts], pa.string())


def _is_writable(kind: pa.DataType, *, inert: bool) -> bool:
    return is_simple(kind) and not (inert and pa.types.is_string(kind))


def write_json(schema: pa.Schema, batches: Iterable[pa.RecordBatch], out: TextIO) -> None:
    """Write an array of objects, one object a line, so that line tools can read it too."""
    before = "["
    for text in _objects(schema, batches):
        out.write(f"{before}\n{text}")
        before = ","
    out.write("[]\n" if before == "[" else "\n]\n")


def write_json_lines(schema: pa.Schema, batches: Iterable[pa.RecordBatch], out: TextIO) -> None:
    """Write one JSON object a line, without an array around them."""
    out.writelines(f"{text}\n" for text in _objects(schema, batches))


def _objects(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
    names = unique_names(schema.names)
    for batch in batches:
        for row in plain_rows(batch):
            text = as_json(dict(zip(names, row, strict=True)))
            # Escaped, characters mean the same but do nothing to a terminal.
            inert = (json.dumps(each)[1:-1] if is_dangerous(each) else each for each in text)
            yield text if text.isprintable() else "".join(inert)


def write_markdown(schema: pa.Schema, batches: Iterable[pa.RecordBatch], out: TextIO) -> None:
    """Write a Markdown table, as issues and documents take it; numbers are aligned to the right."""
    rows = (map(cell, row) for batch in batches for row in plain_rows(batch))
    out.writelines(f"{line}\n" for line in markdown_table(schema.names, map(is_number, schema.types), rows))


def markdown_table(names: Sequence[str], right: Iterable[bool], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield the lines of a Markdown table; `right` marks the columns aligned to the right."""
    rule = ["---:" if each else "---" for each in right]
    yield f"| {' | '.join(map(escaped, names))} |"
    yield f"| {' | '.join(rule)} |"
    for row in rows:
        yield f"| {' | '.join(map(escaped, row))} |"


def escaped(text: str) -> str:
    """Return `text` on one line, without a meaning in Markdown, in HTML or to a terminal."""
    return "".join(f"\\{each}" if each in "\\`*_|<>[]#" else each for each in harmless(text))


WRITERS: Mapping[OutputFormat, Writer] = {
    OutputFormat.TABLE: write_table,
    OutputFormat.JSON: write_json,
    OutputFormat.CSV: write_csv,
    OutputFormat.MARKDOWN: write_markdown,
}


def print_rows(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], output_format: OutputFormat, out: TextIO | None = None
) -> None:
    """Print rows batch by batch; `out` None: standard output."""
    WRITERS[output_format](schema, batches, out or sys.stdout)


def print_table(table: pa.Table, output_format: OutputFormat, out: TextIO | None = None) -> None:
    """Print a table; `out` None: standard output."""
    print_rows(table.schema, table.to_batches(), output_format, out)
