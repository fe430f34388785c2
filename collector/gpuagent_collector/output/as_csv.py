"""CSV with a header line. NULL is empty, an empty text is two quotes."""

from collections.abc import Iterable
from typing import TextIO

import pyarrow as pa
from pyarrow import csv

from gpuagent_collector.output.text import harmless
from gpuagent_collector.output.values import Column, Value, as_json, is_simple, iso_times, plain_column, unique_names


def write_csv(schema: pa.Schema, batches: Iterable[pa.RecordBatch], out: TextIO) -> None:
    """Write the rows as they come: exactly to files and pipes, with control characters escaped to terminals."""
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
    texts = (_text(value) for value in plain_column(column))
    return pa.array([harmless(text) if inert and text else text for text in texts], pa.string())


def _is_writable(kind: pa.DataType, *, inert: bool) -> bool:
    return is_simple(kind) and not (inert and pa.types.is_string(kind))


def _text(value: Value) -> str | None:
    return value if isinstance(value, str | None) else as_json(value)
