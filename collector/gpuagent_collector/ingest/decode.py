"""Decoding of messages into Arrow tables over the messages' own bytes. Nothing from the network is trusted."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError

from gpuagent_collector.errors import RejectedRecordsError
from gpuagent_collector.store.columns import STAMPED, Columns
from gpuagent_proto.v1 import records_pb2

# Limit of rows in all tables of one message.
MAX_ROWS = 1_000_000

# DuckDB type of a column → Arrow type of its decoded rows.
_ARROW_TYPES: Mapping[str, pa.DataType] = {
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "TIMESTAMP": pa.timestamp("ns"),
    "VARCHAR": pa.string(),
    "JSON": pa.string(),
}

_INVITATION = "invitation"

# Table → columns that the collector reads but does not store.
_NOT_STORED: Mapping[str, dict[str, pa.DataType]] = {"run_requests": {_INVITATION: pa.string()}}

# Member of Column.values → layout of its bytes.
_ON_THE_WIRE: Mapping[str, pa.DataType] = {
    "doubles": pa.float64(),
    "integers": pa.int64(),
    "texts": pa.string(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """The rows of one message by table, and the names that the collector does not know."""

    tables: Mapping[str, list[pa.Table]]
    # Names of tables, and of columns as `table.column`.
    unknown: frozenset[str] = field(default_factory=frozenset)
    # Run of several nodes → invitation of this node. Never stored: readers of the store must not have it.
    invitations: Mapping[str, str] = field(default_factory=dict)


class Decoder:
    """A decoder from the payload of a Batch to Arrow tables that fit the store's."""

    def __init__(self, tables: Mapping[str, Columns]) -> None:
        self._types = {
            table: {name: _ARROW_TYPES[data_type] for name, data_type in columns.items()} | _NOT_STORED.get(table, {})
            for table, columns in tables.items()
        }

    def decode(self, records: bytes, *, session_id: int, node_id: int) -> Decoded:
        """Return the rows in `records`, stamped with the session and node that the stream belongs to.

        Raises:
            RejectedRecordsError: the records do not fit the store, or are not records at all.
        """
        try:
            message = records_pb2.Records.FromString(records)
        except DecodeError as error:
            raise RejectedRecordsError("not a Records message") from error
        if sum(table.rows for table in message.tables) > MAX_ROWS:
            raise RejectedRecordsError(f"more than {MAX_ROWS} rows in one message")
        tables: dict[str, list[pa.Table]] = {}
        unknown: set[str] = set()
        invitations: dict[str, str] = {}
        for table in message.tables:
            known = self._types.get(table.name)
            if known is None:
                unknown.add(table.name[:100])
                continue
            columns = dict(_decode_columns(table, known, unknown))
            asked = columns.pop(_INVITATION, None)
            if asked is not None and "run_id" in columns:
                pairs = zip(columns["run_id"].to_pylist(), asked.to_pylist(), strict=True)
                invitations |= {run_id: each for run_id, each in pairs if run_id is not None and each is not None}
            if table.rows and columns:
                for name, value in zip(STAMPED, (session_id, node_id), strict=True):
                    columns[name] = pa.repeat(pa.scalar(value, pa.int64()), table.rows)
                tables.setdefault(table.name, []).append(pa.table(columns))
        return Decoded(tables=tables, unknown=frozenset(unknown), invitations=invitations)


def _decode_columns(
    table: records_pb2.Table, known: Mapping[str, pa.DataType], unknown: set[str]
) -> Iterator[tuple[str, "pa.Array[Any]"]]:
    seen: set[str] = set()
    for column in table.columns:
        data_type = known.get(column.name)
        if data_type is None:
            unknown.add(f"{table.name}.{column.name[:100]}")
            continue
        if column.name in seen:
            raise RejectedRecordsError(f"{table.name}.{column.name} appears twice")
        seen.add(column.name)
        try:
            yield column.name, _decode_column(column, table.rows, data_type)
        except (pa.ArrowException, ValueError) as error:
            raise RejectedRecordsError(f"{table.name}.{column.name}: {error}") from error


def _decode_column(column: records_pb2.Column, rows: int, data_type: pa.DataType) -> "pa.Array[Any]":
    member = column.WhichOneof("values")
    if member is None:
        raise ValueError("no values")
    is_time = member == "integers" and pa.types.is_timestamp(data_type)
    layout = data_type if is_time else _ON_THE_WIRE[member]
    values = pa.Array.from_buffers(layout, rows, _buffers(column, member, rows))
    if member == "texts":
        values.validate(full=True)  # offsets and UTF-8; of numbers there is only the size to check
    elif member == "doubles" and np.isnan(np.frombuffer(column.doubles, "<f8")).any():
        # NaN is no reading, and one would make every average NaN. numpy looks for it, because in short columns Arrow's
        # functions cost more than all other decoding.
        values = pc.if_else(pc.is_nan(values), None, values)
    if values.type == data_type:
        return values
    if not {values.type, data_type} <= {pa.int64(), pa.float64()}:
        raise ValueError(f"{values.type} in a column of {data_type}")
    # Only a number's last bits can be lost; a double fits an integer column only if it is whole.
    return values.cast(data_type, safe=pa.types.is_integer(data_type))


def _buffers(column: records_pb2.Column, member: str, rows: int) -> list[pa.Buffer | None]:
    if column.validity and len(column.validity) != (rows + 7) // 8:
        raise ValueError(f"{len(column.validity)} bytes of validity for {rows} rows")
    content, size_bytes = column.doubles if member == "doubles" else column.integers, 8 * rows
    if member == "texts":
        content, size_bytes = column.texts.offsets, 4 * (rows + 1)
    if len(content) != size_bytes:
        raise ValueError(f"{len(content)} bytes where the rows need {size_bytes}")
    text = [pa.py_buffer(column.texts.utf8)] if member == "texts" else []
    return [pa.py_buffer(column.validity) if column.validity else None, pa.py_buffer(content), *text]
