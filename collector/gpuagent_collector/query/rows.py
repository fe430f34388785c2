"""Rows of an answer as Python values."""

from itertools import pairwise
from typing import Any, cast

import pyarrow as pa


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
