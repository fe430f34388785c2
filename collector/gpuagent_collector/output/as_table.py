"""A table for people. On a terminal that is too narrow for it, each row becomes a block.

Figures are rounded to six digits and times to milliseconds; the other formats have them in full.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import TextIO

import pyarrow as pa
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpuagent_collector.output.terminal import plain_console, plain_table, table_width
from gpuagent_collector.output.values import Value, cell, is_number, plain_rows
from gpuagent_common.text import harmless

# Nobody reads more rows in a terminal, and all of them must be in memory to align their columns.
MAX_ROWS = 1_000

# Longer texts may be folded to this many characters.
_FOLDABLE_WIDTH = 24
_EXPLAIN = ["explain_key", "explain_value"]

Rows = Sequence[Sequence[str]]


def write_table(schema: pa.Schema, batches: Iterable[pa.RecordBatch], out: TextIO) -> None:
    """Write the first MAX_ROWS rows, as wide as the terminal, and a note where there are more."""
    console = plain_console(out)
    if schema.names == _EXPLAIN:
        return _write_plan(batches, console)
    values = chain.from_iterable(plain_rows(batch) for batch in batches)
    rows = [_shown(schema, row) for row in islice(values, MAX_ROWS + 1)]
    names = [harmless(name) for name in schema.names]
    if _needed_width(names, schema, rows[:MAX_ROWS]) <= console.width:
        console.print(_table(names, schema, rows[:MAX_ROWS]))
    else:
        _write_blocks(names, rows[:MAX_ROWS], console)
    if not rows:
        console.print("no rows", style="dim")
    if len(rows) > MAX_ROWS:
        console.print(f"… the first {MAX_ROWS:,} rows; --format csv or --json prints all")
    return None


def _shown(schema: pa.Schema, row: Sequence[Value]) -> list[str]:
    return [
        _short_time(str(value)) if value and pa.types.is_timestamp(kind) else cell(value)
        for value, kind in zip(row, schema.types, strict=True)
    ]


def _short_time(text: str) -> str:
    """Return an ISO 8601 time cut to milliseconds."""
    seconds, _, fraction = text.removesuffix("Z").partition(".")
    milliseconds = fraction[:3].rstrip("0")
    return f"{seconds}.{milliseconds}Z" if milliseconds else f"{seconds}Z"


def _is_foldable(kind: pa.DataType) -> bool:
    return not (is_number(kind) or pa.types.is_temporal(kind) or pa.types.is_boolean(kind))


def _needed_width(names: Sequence[str], schema: pa.Schema, rows: Rows) -> int:
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    widths = []
    for name, kind, cells in zip(names, schema.types, columns, strict=True):
        widest = max(map(cell_len, cells), default=0)
        widths.append(max(cell_len(name), min(widest, _FOLDABLE_WIDTH) if _is_foldable(kind) else widest))
    return table_width(widths)


def _table(names: Sequence[str], schema: pa.Schema, rows: Rows) -> Table:
    table = plain_table()
    for name, kind in zip(names, schema.types, strict=True):
        table.add_column(
            Text(name), justify="right" if is_number(kind) else "left", no_wrap=not _is_foldable(kind), overflow="fold"
        )
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _write_blocks(names: Sequence[str], rows: Rows, console: Console) -> None:
    for number, row in enumerate(rows, start=1):
        block = Table(box=None, pad_edge=False, show_header=False, title=f"row {number}", title_justify="left")
        block.add_column(style="bold", no_wrap=True)
        block.add_column(overflow="fold")
        for name, text in zip(names, row, strict=True):
            block.add_row(Text(name), Text(text))
        console.print(block)


def _write_plan(batches: Iterable[pa.RecordBatch], console: Console) -> None:
    """Print a plan as DuckDB draws it."""
    for batch in batches:
        for _, plan in plain_rows(batch):
            for line in str(plan).splitlines():
                console.print(Text(harmless(line), no_wrap=True), crop=False)
