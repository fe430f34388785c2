"""JSON: an array of objects, one object a line, so that line tools can work with it too; or the lines alone."""

import json
from collections.abc import Iterable, Iterator
from typing import TextIO

import pyarrow as pa

from gpuagent_collector.output.text import is_dangerous
from gpuagent_collector.output.values import as_json, plain_rows, unique_names


def write_json(schema: pa.Schema, batches: Iterable[pa.RecordBatch], out: TextIO) -> None:
    """Write the rows as they come."""
    before = "["
    for text in _objects(schema, batches):
        out.write(f"{before}\n{text}")
        before = ","
    out.write("[]\n" if before == "[" else "\n]\n")


def write_json_lines(schema: pa.Schema, batches: Iterable[pa.RecordBatch], out: TextIO) -> None:
    """Write the rows as they come, without the array around them."""
    out.writelines(f"{text}\n" for text in _objects(schema, batches))


def _objects(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
    names = unique_names(schema.names)
    for batch in batches:
        for row in plain_rows(batch):
            yield _inert(as_json(dict(zip(names, row, strict=True))))


def _inert(text: str) -> str:
    """Return JSON in which no character does anything to a terminal; it means the same."""
    if text.isprintable():
        return text
    return "".join(json.dumps(each)[1:-1] if is_dangerous(each) else each for each in text)
