"""Rows on their way into one INSERT."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gpuagent_collector.ingest.messages import Message
from gpuagent_common.statuses import FINAL_STATUSES

_TIME = pa.timestamp("us")


def in_one_piece(tables: Sequence[pa.Table]) -> pa.Table:
    """Join rows of one table; a column that some do not have is NULL there.

    DuckDB takes one long chunk ten times faster than many short ones. Times are brought to microseconds here, not
    message by message, because a cast costs as much as decoding ten columns.
    """
    joined = pa.concat_tables(tables, promote_options="default").combine_chunks()
    return joined.cast(pa.schema([_stored(field) for field in joined.schema]), safe=False)


def _stored(field: "pa.Field[Any]") -> "pa.Field[Any]":
    return field.with_type(_TIME) if pa.types.is_timestamp(field.type) else field


def ended_runs(states: pa.Table | None) -> list[str]:
    """Return the runs that came to an end in these rows of run_states."""
    if states is None or not {"run_id", "status"} <= set(states.column_names):
        return []
    ended = states.filter(pc.is_in(states["status"], pa.array(FINAL_STATUSES)))
    return [run_id for run_id in ended["run_id"].unique().to_pylist() if run_id is not None]


def mark_rows(marks: Mapping[int, int], now: datetime) -> pa.Table:
    """Return rows of `marks`: session → number."""
    return pa.table(
        {
            "session_id": pa.array(list(marks.keys()), pa.int64()),
            "number": pa.array(list(marks.values()), pa.uint64()),
            "committed_at": pa.array([now] * len(marks), _TIME),
        }
    )


def gap_rows(rejections: Sequence[tuple[Message, str | None]], now: datetime) -> pa.Table:
    """Return rows of `gaps`, one for each message that was rejected with its reason."""
    count = len(rejections)
    return pa.table(
        {
            "session_id": pa.array([message.session_id for message, _ in rejections], pa.int64()),
            "node_id": pa.array([message.node_id for message, _ in rejections], pa.int64()),
            "time": pa.array([now] * count, _TIME),
            "reason": pa.array(["rejected"] * count),
            "messages": pa.array([1] * count, pa.int64()),
            "detail": pa.array([f"message {message.number}: {reason}" for message, reason in rejections]),
        }
    )
