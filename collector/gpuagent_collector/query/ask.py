"""The interface through which everything reads the store: statements with their values, and their rows in Python."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol, cast

import duckdb
import pyarrow as pa

from gpuagent_collector.query.execute import Parameter
from gpuagent_common.text import harmless


class Ask(Protocol):
    """A callable that runs one SELECT."""

    def __call__(self, sql: str, parameters: Sequence[Parameter] = ()) -> list[dict[str, Any]]:
        """Return the rows of `sql`; `parameters` are the values of its `?`."""
        ...


def ask_within(connection: duckdb.DuckDBPyConnection) -> Ask:
    """Return a way to ask within the open transaction of a connection; it raises duckdb.Error."""

    def ask(sql: str, parameters: Sequence[Parameter] = ()) -> list[dict[str, Any]]:
        return connection.execute(sql, list(parameters)).to_arrow_table().to_pylist()

    return ask


def literal(value: Parameter) -> str:
    """Return `value` as an SQL literal."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, Iterable):
        return f"[{', '.join(map(literal, value))}]"
    return "NULL" if value is None else str(value)


def with_values(sql: str, parameters: Sequence[Parameter]) -> str:
    """Return a statement with its `?` filled in, ready for `collector query`."""
    # A question mark within a text is no parameter: only one that starts a token is.
    encoded = sql.encode()
    marks = [start for start, _ in duckdb.tokenize(sql) if encoded[start : start + 1] == b"?"]
    starts = [0, *(mark + 1 for mark in marks)]
    texts = [encoded[start:end].decode() for start, end in zip(starts, [*marks, len(encoded)], strict=True)]
    values = [literal(value) for value in parameters]
    filled = "".join(text + value for text, value in zip(texts, [*values, ""], strict=True))
    # Names may be within the text as well. A line stays one.
    return "\n".join(map(harmless, filled.split("\n")))


def list_text(values: Iterable[str | int]) -> str:
    """Return a list as a text for `CAST(? AS VARCHAR[])`.

    DuckDB looks for pandas at each value of a list that it is given, which takes 40 µs where there is none.
    """
    texts = list(map(str, values))
    if texts and not {'"', "\\"}.intersection("".join(texts)):
        return '["' + '", "'.join(texts) + '"]'
    escaped = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return "[" + ", ".join(f'"{text}"' for text in escaped) + "]"


class Recorder:
    """A recorder of queries, by topic. A statement that several topics have is asked once."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._statements: dict[str, list[str]] = defaultdict(list)
        # Of each statement, with its values filled in and its answer.
        self._known: dict[tuple[str, str], tuple[str, list[dict[str, Any]]]] = {}

    @property
    def statements(self) -> Mapping[str, Sequence[str]]:
        """The statements with their values filled in, by topic, in the order in which they were asked."""
        return self._statements

    def about(self, topic: str) -> Ask:
        """Return a function that asks the store and keeps the statements under a topic."""

        def ask(sql: str, parameters: Sequence[Parameter] = ()) -> list[dict[str, Any]]:
            asked = sql, repr(parameters)
            if asked not in self._known:
                self._known[asked] = f"{with_values(sql.strip(), parameters)};", self._ask(sql, parameters)
            statement, rows = self._known[asked]
            self._statements[topic].append(statement)
            return rows

        return ask


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows as dictionaries, as `to_pylist` does.

    Lists of DOUBLE or INTEGER without NULL are arrays: a million numbers would be a million objects.
    """
    columns = map(_values, table.columns)
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(column: "pa.ChunkedArray[Any]") -> list[Any]:
    kind = column.type
    if not pa.types.is_list(kind) or not (pa.types.is_float64(kind.value_type) or pa.types.is_int32(kind.value_type)):
        return column.to_pylist()
    values: list[Any] = []
    for chunk in cast("list[pa.ListArray[Any]]", column.chunks):
        # Of the whole column, into which the offsets point: `flatten` would import all of Arrow's functions.
        numbers = chunk.values
        if chunk.null_count or numbers.null_count:
            values += chunk.to_pylist()
        else:
            values += [numbers.to_numpy()[start:end] for start, end in pairwise(chunk.offsets.to_pylist())]
    return values
