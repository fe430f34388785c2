"""The store in a notebook: SQL in, tables out, and the answers of the commands."""

import io
import os
import re
from collections.abc import Sequence
from enum import Enum
from html import escape
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from gpuagent_collector.cli.answers import parse
from gpuagent_collector.cli.printing import asking
from gpuagent_collector.present.answer import Answer
from gpuagent_collector.present.data import write_table
from gpuagent_collector.present.values import Value, cell, is_number, plain_rows, unique_names
from gpuagent_collector.query.execute import Parameter
from gpuagent_collector.query.reader import StreamingReader, open_reader
from gpuagent_common.connection import (
    ADDRESS_VARIABLE,
    CA_FILE_VARIABLE,
    CLIENT_CERT_VARIABLE,
    CLIENT_KEY_VARIABLE,
    TlsFiles,
    tls_files,
)
from gpuagent_common.errors import GpuAgentError, MisuseError

_ADDRESS = re.compile(r"[^/]+:\d+")

# Of a result printed by a notebook.
_SHOWN_ROWS = 20


class Result:
    """All rows of one statement, in memory."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table.rename_columns(unique_names(table.column_names))

    def __len__(self) -> int:
        return self._table.num_rows

    @property
    def columns(self) -> list[str]:
        """The columns' names; a repeated one gets a number."""
        return self._table.column_names

    def arrow(self) -> pa.Table:
        """Return the rows as an Arrow table, for polars, DuckDB and others."""
        return self._table

    def df(self) -> Any:
        """Return the rows as a pandas DataFrame.

        Integers are pandas' nullable Int64, exact, with <NA> for absent ones. Times are UTC without a zone. Raises
        GpuAgentError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise GpuAgentError("df() needs pandas; run: pip install pandas, or take arrow()") from None
        nullable: dict[pa.DataType, Any] = {
            pa.int32(): pandas.Int32Dtype(),
            pa.int64(): pandas.Int64Dtype(),
            pa.uint64(): pandas.UInt64Dtype(),
        }
        return self._table.to_pandas(types_mapper=nullable.get)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows as tuples of Python values; None for an absent value."""
        return list(zip(*(column.to_pylist() for column in self._table.columns), strict=True))

    def __repr__(self) -> str:
        out = io.StringIO()
        write_table(self._table.schema, self._table.slice(0, _SHOWN_ROWS).to_batches(), out)
        return f"{out.getvalue()}{self._rest()}"

    def _repr_html_(self) -> str:
        """Return the first rows as HTML, with all stored text escaped."""
        schema, first = self._table.schema, self._table.slice(0, _SHOWN_ROWS)
        head = "".join(f"<th>{escape(name)}</th>" for name in schema.names)
        body = "".join(_html_row(schema, row) for batch in first.to_batches() for row in plain_rows(batch))
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{escape(self._rest())}</p>"

    def _rest(self) -> str:
        return f"the first {_SHOWN_ROWS} of {len(self):,} rows" if len(self) > _SHOWN_ROWS else f"{len(self)} rows"


class Connection:
    """A connection to a collector or a store. Every statement is answered in full, or not at all."""

    def __init__(self, reader: StreamingReader) -> None:
        self._reader = reader

    @property
    def source(self) -> str:
        """The collector's address or the store's path, for people."""
        return self._reader.source

    def sql(self, statement: str, parameters: Sequence[Parameter] = ()) -> Result:
        """Run one SELECT, DESCRIBE, SUMMARIZE or SHOW TABLES, with the values of its `?`.

        Raises:
            MisuseError: it is not such a statement, or DuckDB rejects it.
            GpuAgentError: the store cannot be read, or the answer exceeds the collector's limits.
        """
        return Result(self._reader.sql(statement, parameters))

    def answer(self, name: str, *values: str, **options: object) -> Answer:
        """Return what a command that answers says, such as `answer("compare", "satori", "openshift", delta=3)`.

        Args:
            name: of the command: compare, show, recommend, plan, peers, outliers, history, scaling, …
            values: its arguments.
            options: by their names in `collector NAME --help`, with _ for -; True for one without a value, and a list
                for one that is repeated. A name that Python reserves takes a _ at its end.

        Raises:
            MisuseError: an option is unknown or has an invalid value.
            GpuAgentError: there is no answer.
        """
        words = [name]
        for option, given in options.items():
            for value in given if isinstance(given, list | tuple) else [given]:
                words += _words(f"--{option.rstrip('_').replace('_', '-')}", value)
        entry, asked = parse([*words, "--", *values])
        if entry.is_file:
            raise MisuseError(f"{name} writes a file; run it as a command: collector {name}")
        return entry.call(asking(self._reader, show_sql=False), self.source, asked)

    def compare(self, *sides: str, **options: object) -> Answer:
        """Compare sides; `answer` describes the options."""
        return self.answer("compare", *sides, **options)

    def show(self, *name: str, **options: object) -> Answer:
        """Show a run, or those of a platform, experiment or workload; `answer` describes the options."""
        return self.answer("show", *name, **options)

    def recommend(self, workload: str, **options: object) -> Answer:
        """Recommend where a workload should run; `answer` describes the options."""
        return self.answer("recommend", workload, **options)

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()

    def __repr__(self) -> str:
        return f"<{self.source}>"

    def __enter__(self) -> "Connection":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def find_tls(*files: str | Path | None) -> TlsFiles | None:
    """Return the CA, certificate and key that `connect` was given, or else those of the environment.

    Raises MisuseError: they do not belong together.
    """
    variables = (CA_FILE_VARIABLE, CLIENT_CERT_VARIABLE, CLIENT_KEY_VARIABLE)
    named = [file or os.environ.get(variable) for file, variable in zip(files, variables, strict=True)]
    ca, certificate, key = (Path(file) if file else None for file in named)
    return tls_files(ca, certificate, key)


def open_connection(place: str | Path | None, token_file: Path | None, tls: TlsFiles | None) -> Connection:
    """Open the place that `connect` describes."""
    named = str(place) if place is not None else None
    is_address = named is None or _ADDRESS.fullmatch(named) is not None
    address = (named or os.environ.get(ADDRESS_VARIABLE) or None) if is_address else None
    store = None if is_address else named
    return Connection(open_reader(address=address, token_file=token_file, store=store, tls=tls))


def _words(option: str, value: object) -> list[str]:
    """Return an option as a command line has it."""
    if value is None or value is False:
        return []
    if value is True:
        return [option]
    return [option, str(value.value if isinstance(value, Enum) else value)]


def _html_row(schema: pa.Schema, row: Sequence[Value]) -> str:
    styles = (' style="text-align:right"' if is_number(kind) else "" for kind in schema.types)
    return (
        "<tr>"
        + "".join(f"<td{style}>{escape(cell(value))}</td>" for style, value in zip(styles, row, strict=True))
        + "</tr>"
    )
