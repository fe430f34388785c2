"""Rows of the store, printed as JSON, CSV, Markdown, LaTeX or a table for people.

On a terminal that is too narrow for a table, each row becomes a block. A table rounds figures to six digits and times
to milliseconds; the other formats have them in full.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import TextIO

import pyarrow as pa
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from gpuagent_collector.present.formats import OutputFormat
from gpuagent_collector.present.latex import latex_table
from gpuagent_collector.present.markdown import markdown_table
from gpuagent_collector.present.terminal import plain_console, plain_table, table_width
from gpuagent_collector.present.values import (
    Column,
    Value,
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

# Nobody reads more rows in a terminal, and all of them must be in memory to align their columns.
MAX_ROWS = 1_000
# Of blocks, each of which fills a screen, and takes as long to draw as many rows of a table.
MAX_BLOCKS = 50

# Longer texts may be folded to this many characters.
_FOLDABLE_WIDTH = 24
# Spreadsheets compute such texts, which agents choose, and start programs or send cells away. Numbers and dates do no
# harm.
_FORMULA, _NUMBER = r"^[=+\-@\t\r\n]", r"^[+\-][+\-0-9.: %]*([eE][+\-]?[0-9]+)?$"
# Options of a program, such as `--batch-size 32`, have no cell, function or operator that a spreadsheet knows.
_OPTIONS = r"^--[a-z][a-z_\-]+([ =][A-Za-z0-9_.:/\-]+)*$"

_EXPLAIN = ["explain_key", "explain_value"]

Rows = Sequence[Sequence[str]]


def write_table(schema: pa.Schema, batches: Iterable[pa.RecordBatch], out: TextIO) -> None:
    """Write the first MAX_ROWS rows, as wide as the terminal, and a note where there are more."""
    console = plain_console(out)
    if schema.names == _EXPLAIN:
        # A plan as DuckDB draws it.
        for _, plan in chain.from_iterable(map(plain_rows, batches)):
            for line in str(plan).splitlines():
                console.print(Text(harmless(line), no_wrap=True), crop=False)
        return
    values = chain.from_iterable(plain_rows(batch) for batch in batches)
    rows = [_format_row(schema, row) for row in islice(values, MAX_ROWS + 1)]
    names = [harmless(name) for name in schema.names]
    most = MAX_ROWS
    if _needed_width(names, schema, rows[:MAX_ROWS]) <= console.width:
        console.print(_table(names, schema, rows[:MAX_ROWS]))
    else:
        most = MAX_BLOCKS
        for number, row in enumerate(rows[:MAX_BLOCKS], start=1):
            block = Table(box=None, pad_edge=False, show_header=False, title=f"row {number}", title_justify="left")
            block.add_column(style="bold", no_wrap=True)
            block.add_column(overflow="fold")
            for name, text in zip(names, row, strict=True):
                block.add_row(Text(name), Text(text))
            console.print(block)
    if not rows:
        console.print("no rows", style="dim")
    if len(rows) > most:
        console.print(f"… the first {most:,} rows; --format csv or --json prints all")


def _format_row(schema: pa.Schema, row: Sequence[Value]) -> list[str]:
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


Writer = Callable[[pa.Schema, Iterable[pa.RecordBatch], TextIO], None]


def write_csv(schema: pa.Schema, batches: Iterable[pa.RecordBatch], out: TextIO) -> None:
    """Write CSV with a header line, batch by batch: NULL is empty, an empty text is two quotes.

    A text that a spreadsheet would compute has an apostrophe in front, which keeps it a text there; all others are
    exact in files and pipes. Control characters are escaped on terminals.
    """
    from pyarrow import csv  # only here: most answers are no CSV

    inert = out.isatty()
    given = pa.array(map(harmless, schema.names) if inert else schema.names, pa.string())
    names = unique_names(map(str, _as_texts(given).to_pylist()))
    kinds = [kind if _is_writable(kind, inert=inert) else pa.string() for kind in schema.types]
    written = pa.schema(list(zip(names, kinds, strict=True)))
    out.flush()
    with csv.CSVWriter(out.buffer, written) as writer:
        for batch in batches:
            columns = [_writable(column, inert=inert) for column in batch.columns]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=written))


def _as_texts(column: Column) -> Column:
    """Return the column with an apostrophe before each text that a spreadsheet would take for a formula."""
    import pyarrow.compute as pc

    is_harmless = pc.match_substring_regex(column, f"{_NUMBER}|{_OPTIONS}")
    is_formula = pc.and_not(pc.match_substring_regex(column, _FORMULA), is_harmless)
    quoted = pc.replace_substring_regex(column, pattern="^", replacement="'", max_replacements=1)
    texts: Column = pc.if_else(is_formula, quoted, column)
    return texts


def _writable(column: Column, *, inert: bool) -> Column:
    """Return the column as one that Arrow's CSV writer takes."""
    if pa.types.is_timestamp(column.type):
        return iso_times(column)
    if not _is_writable(column.type, inert=inert):
        values = plain_column(column)
        texts = (value if isinstance(value, str | None) else as_json(value) for value in values)
        column = pa.array([harmless(text) if inert and text else text for text in texts], pa.string())
    return _as_texts(column) if pa.types.is_string(column.type) else column


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


def _write_lines(
    make: Callable[..., Iterable[str]], schema: pa.Schema, batches: Iterable[pa.RecordBatch], out: TextIO
) -> None:
    """Write the lines of a table in which numbers are aligned to the right."""
    rows = (map(cell, row) for batch in batches for row in plain_rows(batch))
    out.writelines(f"{line}\n" for line in make(schema.names, map(is_number, schema.types), rows))


write_markdown: Writer = partial(_write_lines, markdown_table)

WRITERS: Mapping[OutputFormat, Writer] = {
    OutputFormat.TABLE: write_table,
    OutputFormat.JSON: write_json,
    OutputFormat.CSV: write_csv,
    OutputFormat.MARKDOWN: write_markdown,
    OutputFormat.LATEX: partial(_write_lines, latex_table),
}


def print_rows(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], output_format: OutputFormat, out: TextIO | None = None
) -> None:
    """Print rows batch by batch; `out` None: standard output."""
    WRITERS[output_format](schema, batches, out or sys.stdout)


def print_table(table: pa.Table, output_format: OutputFormat, out: TextIO | None = None) -> None:
    """Print a table; `out` None: standard output."""
    print_rows(table.schema, table.to_batches(), output_format, out)
