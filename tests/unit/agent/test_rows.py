import math
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent.sampling.rows import RecordBuffer, Row, encode_records, split_rows
from gpuagent_proto.v1.records_pb2 import Column, Records, Table

INTEGERS = st.integers(min_value=-(2**63), max_value=2**63 - 1)
CELLS = {
    "integers": st.none() | INTEGERS,
    "doubles": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    "texts": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
}


def arrow(column: Column, rows: int) -> list[object]:
    """Read a column as the collector does: as Arrow memory."""
    validity = pa.py_buffer(column.validity) if column.validity else None
    array: pa.Array[Any]
    match column.WhichOneof("values"):
        case "doubles":
            array = pa.Array.from_buffers(pa.float64(), rows, [validity, pa.py_buffer(column.doubles)])
        case "integers":
            array = pa.Array.from_buffers(pa.int64(), rows, [validity, pa.py_buffer(column.integers)])
        case _:
            buffers = [validity, pa.py_buffer(column.texts.offsets), pa.py_buffer(column.texts.utf8)]
            array = pa.Array.from_buffers(pa.string(), rows, buffers)
    array.validate(full=True)
    return list(array.to_pylist())


@pytest.mark.parametrize("kind", CELLS)
@given(data=st.data())
def test_columns_are_arrow_memory_and_round_trip(kind: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(CELLS[kind], min_size=1))
    records = Records.FromString(encode_records({"t": [{"c": value} for value in values]}))
    (table,) = records.tables
    assert table.rows == len(values)
    if all(value is None for value in values):
        assert not table.columns
    else:
        assert arrow(table.columns[0], len(values)) == values


def encode(*rows: Row) -> Table:
    return Records.FromString(encode_records({"t": rows})).tables[0]


def test_rows_may_lack_columns() -> None:
    table = encode({"a": 1}, {"b": 2.5})
    assert {column.name: arrow(column, 2) for column in table.columns} == {"a": [1, None], "b": [None, 2.5]}


@pytest.mark.parametrize(
    ("value", "other", "encoded"),
    [
        (1, 2.5, 1.0),
        *((value, 1.0, None) for value in (math.nan, math.inf, -math.inf)),
        *((value, 7, None) for value in (2**63, 2**64 - 1, -(2**63) - 1)),
    ],
)
def test_numbers_are_floats_if_mixed_and_absent_if_not_storable(value: float, other: float, encoded: object) -> None:
    found = arrow(encode({"a": value}, {"a": other}).columns[0], 2)
    assert [(number, type(number)) for number in found] == [(encoded, type(encoded)), (other, type(other))]


def test_values_are_little_endian() -> None:
    assert encode({"a": 258}).columns[0].integers == struct.pack("<q", 258)


def test_a_buffer_returns_samples_and_records_once() -> None:
    buffer = RecordBuffer()
    buffer.add_samples("host_samples", [{"time": 1}])
    buffer.add_samples("host_samples", [{"time": 2}])
    buffer.add_record("results", {"name": "loss"})
    assert buffer.drain() == ({"host_samples": [{"time": 1}, {"time": 2}]}, {"results": [{"name": "loss"}]})
    assert buffer.drain() == ({}, {})


def test_a_row_that_cannot_be_compared_with_its_limits_costs_no_other_row() -> None:
    buffer = RecordBuffer()
    buffer.add_samples("host_samples", [{"time": 1, "cpu_percent": "much"}, {"time": 2, "cpu_percent": 1.0}])
    buffer.add_record("run_events", {"time": 3, "event": "phase"})
    samples, records = buffer.drain()
    assert [row["time"] for row in samples["host_samples"]] == [2]
    assert [row["time"] for row in records["run_events"]] == [3]


def test_facts_and_reports_beyond_physical_limits_are_absent_and_counted_without_a_source() -> None:
    buffer = RecordBuffer()
    buffer.add_record("session_devices", {"time": 7, "uuid": "GPU-1", "power_limit_watts": 4_294_967.295})
    buffer.add_record("steps", {"time": 8, "wall_seconds": -1.0, "step": -3})
    _, records = buffer.drain(is_last=True)
    assert records["session_devices"] == [{"time": 7, "uuid": "GPU-1", "power_limit_watts": None}]
    assert records["steps"] == [{"time": 8, "wall_seconds": None, "step": -3}]
    counts = [(row["source"], row["quantity"], row["time"]) for row in records["impossible_readings"]]
    assert counts == [(None, "session_devices.power_limit_watts", 7), (None, "steps.wall_seconds", 8)]


def test_rows_are_split_over_tables_without_loss_and_in_their_order() -> None:
    one, two, three, four = ({"value": number} for number in range(4))
    parts = [dict(part) for part in split_rows({"a": [one, two, three], "b": [four]}, 2)]
    assert parts == [{"a": [one, two]}, {"a": [three], "b": [four]}]
