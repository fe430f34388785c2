"""JSON: an array of objects, one object a line, so that line tools can work with it too."""

from collections.abc import Iterable
from typing import TextIO

import pyarrow as pa

from gpuagent_collector.output.text import is_dangerous
from gpuagent_collector.output.values import as_json, plain_rows, unique_names


def write_json(schema: pa.Schema, batches: Iterable[pa.RecordBatch], out: TextIO) -> None:
    """Write the rows as they come."""
    names = unique_names(schema.names)
    before = "["
    for batch in batches:
        for row in plain_rows(batch):
            out.write(f"{before}\n{_inert(as_json(dict(zip(names, row, strict=True))))}")
            before = ","
    out.write("[]\n" if before == "[" else "\n]\n")


def _inert(text: str) -> str:
    """Return JSON in which no character does anything to a terminal; it means the same."""
    if text.isprintable():
        return text
    return "".join(f"\\u{ord(each):04x}" if is_dangerous(each) else each for each in text)
