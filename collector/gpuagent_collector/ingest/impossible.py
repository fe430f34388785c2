"""Values beyond physical limits in messages: agents leave them out, but nothing from the network is trusted."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpuagent_common.ranges import Range, find_parts, find_range

# The table of the counts.
COUNTS = "impossible_readings"


class Checked(NamedTuple):
    """Rows with NULL in the place of each impossible value, and rows of `impossible_readings` that count them."""

    rows: pa.Table
    counts: Sequence[Mapping[str, object]]


def drop_impossible(table: str, rows: pa.Table) -> Checked:
    """Return the rows of `table`, joined from messages, without values that are impossible."""
    counts: list[Mapping[str, object]] = []
    for column in rows.column_names:
        limits = find_range(table, column)
        values: Any = rows[column].chunk(0)
        if limits is not None and _may_exceed(values, limits):
            lowest, highest = (pa.scalar(limit, pa.float64()).cast(values.type) for limit in limits)
            mask = pc.or_(pc.less(values, lowest), pc.greater(values, highest))
            rows = _drop(table, rows, column, mask, counts)
    for part, whole in find_parts(table).items():
        if part in rows.column_names and whole in rows.column_names:
            parts, wholes = (rows[column].chunk(0) for column in (part, whole))
            rows = _drop(table, rows, part, pc.greater(parts, wholes), counts)
    return Checked(rows, counts)


def _may_exceed(values: "pa.Array[Any]", limits: Range) -> bool:
    """Return False if surely no value exceeds the limits, after one pass over the numbers.

    As unsigned numbers the bits of negative integers, negative floats and NaN exceed those of all others.
    """
    kind = "<i8" if pa.types.is_integer(values.type) else "<f8"
    numbers: Any = values.buffers()[1]
    bits = np.frombuffer(numbers, "<u8", count=len(values), offset=8 * values.offset)
    return bool(bits.max() > np.array(limits.highest, kind).view("<u8"))


def _drop(table: str, rows: pa.Table, column: str, found: Any, counts: list[Mapping[str, object]]) -> pa.Table:
    """Return the rows without the values of a column at which `found` is true, and add their number to `counts`."""
    mask = found.fill_null(False)
    if not pc.any(mask).as_py():
        return rows
    counts += _count(f"{table}.{column}", column, rows.filter(mask))
    values: Any = rows[column].chunk(0)
    position = rows.column_names.index(column)
    return rows.set_column(position, column, pc.if_else(mask, pa.scalar(None, values.type), values))


def _count(quantity: str, column: str, rows: pa.Table) -> Iterator[Mapping[str, object]]:
    """Yield a row for each session with impossible values."""
    times = rows["time"] if "time" in rows.column_names else pa.nulls(rows.num_rows, pa.timestamp("us"))
    found = pa.table(
        {"session_id": rows["session_id"], "node_id": rows["node_id"], "time": times, "value": rows[column]}
    )
    groups = found.group_by(["session_id", "node_id"], use_threads=False).aggregate(
        [("time", "min"), ("time", "max"), ("value", "count"), ("value", "last")]
    )
    for group in groups.to_pylist():
        yield {
            "session_id": group["session_id"],
            "node_id": group["node_id"],
            "time": group["time_max"],
            "from_time": group["time_min"],
            "source": None,
            "quantity": quantity,
            "readings": group["value_count"],
            "value": float(group["value_last"]),
        }
