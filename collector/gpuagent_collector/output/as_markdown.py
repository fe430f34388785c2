"""A Markdown table, as issues and documents take it."""

from collections.abc import Iterable, Sequence
from typing import TextIO

import pyarrow as pa

from gpuagent_collector.output.text import harmless
from gpuagent_collector.output.values import cell, is_number, plain_rows


def write_markdown(schema: pa.Schema, batches: Iterable[pa.RecordBatch], out: TextIO) -> None:
    """Write the rows as they come; numbers are aligned to the right."""
    out.write(_line([escaped(harmless(name)) for name in schema.names]))
    out.write(_line(["---:" if is_number(kind) else "---" for kind in schema.types]))
    for batch in batches:
        for row in plain_rows(batch):
            out.write(_line([escaped(cell(value)) for value in row]))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def escaped(text: str) -> str:
    """Return `text` without a meaning in Markdown or HTML."""
    return "".join(f"\\{character}" if character in "\\`*_|<>[]#" else character for character in text)
