import math
import struct
from collections.abc import Mapping

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent.sampling.rows import encode_records
from gpuagent_collector.errors import RejectedRecordsError
from gpuagent_collector.ingest import decode as decode_module
from gpuagent_collector.ingest import layouts
from gpuagent_collector.ingest.decode import MAX_ROWS, Decoded, Decoder, join
from gpuagent_proto.v1.records_pb2 import Column, Records, Table, Texts

TABLES = {
    "readings": {"time": "TIMESTAMP", "count": "BIGINT", "share": "DOUBLE", "name": "VARCHAR", "labels": "JSON"},
    "states": {"name": "VARCHAR"},
}
DECODER = Decoder(TABLES)


def decode(records: Records | bytes) -> Decoded:
    raw = records if isinstance(records, bytes) else records.SerializeToString()
    return DECODER.decode(raw, session_id=-7, node_id=9)


def one_column(column: Column, rows: int = 2) -> Records:
    return Records(tables=[Table(name="readings", rows=rows, columns=[column])])


def values(column: Column, rows: int = 2) -> list[object]:
    table = join(decode(one_column(column, rows)).tables["readings"])
    return list(table[column.name].to_pylist())


def integers(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}q", *numbers)


def doubles(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}d", *numbers)


def offsets(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}i", *numbers)


def name_column(utf8: bytes, *numbers: int) -> Column:
    return Column(name="name", texts=Texts(offsets=offsets(*numbers), utf8=utf8))


CELLS = {
    "count": st.none() | st.integers(min_value=-(2**63), max_value=2**63 - 1),
    "share": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    "name": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
}


@given(rows=st.lists(st.fixed_dictionaries(CELLS), min_size=1, max_size=20))
def test_what_an_agent_encodes_is_what_is_decoded(rows: list[dict[str, int | float | str | None]]) -> None:
    pieces = decode(encode_records({"readings": rows})).tables.get("readings")
    decoded = join(pieces).to_pylist() if pieces else []
    stamps = {"session_id": -7, "node_id": 9}
    assert [{**dict.fromkeys(CELLS), **row} for row in decoded] in ([{**row, **stamps} for row in rows], [])
    assert decoded or not any(value is not None for row in rows for value in row.values())


def test_rows_belong_to_the_session_of_the_stream_whatever_they_say() -> None:
    decoded = decode(encode_records({"states": [{"name": "a", "session_id": 1, "node_id": 1}]}))
    assert join(decoded.tables["states"]).to_pylist() == [{"name": "a", "session_id": -7, "node_id": 9}]
    assert decoded.unknown == {"states.session_id", "states.node_id"}


def test_columns_that_the_store_lacks_are_left_out_and_counted() -> None:
    decoded = decode(encode_records({"states": [{"name": "a", "mood": "good"}], "readings": [{"mood": "bad"}]}))
    assert join(decoded.tables["states"]).column_names == ["name", "session_id", "node_id"]
    assert decoded.tables.keys() == {"states"}
    assert decoded.unknown == {"states.mood", "readings.mood"}


def test_tables_that_the_store_lacks_or_keeps_to_itself_are_left_out_and_their_neighbours_stay() -> None:
    decoded = decode(encode_records({"marks": [{"number": 1}], "moods": [{"name": "a"}], "states": [{"name": "b"}]}))
    assert decoded.tables.keys() == {"states"}
    assert decoded.unknown == {"marks", "moods"}


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (Column(name="share", doubles=doubles(math.nan, 0.5)), [None, 0.5]),
        (Column(name="share", doubles=doubles(math.nan, math.inf), validity=b"\x03"), [None, None]),
        (Column(name="share", doubles=doubles(-math.inf, 1e308)), [None, 1e308]),
        (Column(name="count", doubles=doubles(math.nan, 2.0)), [None, 2]),
        (Column(name="share", integers=integers(1, 2**63 - 1)), [1.0, float(2**63)]),
        (Column(name="count", doubles=doubles(3.0, -4.0)), [3, -4]),
        (Column(name="count", integers=integers(5, 6), validity=b"\x02"), [None, 6]),
    ],
)
def test_numbers_fit_their_column_and_what_is_no_number_is_absent(column: Column, expected: list[object]) -> None:
    assert values(column) == expected


def test_times_are_nanoseconds_on_the_wire_and_microseconds_in_the_store() -> None:
    pieces = decode(encode_records({"readings": [{"time": 1_700_000_000_123_456_789}]})).tables["readings"]
    assert join(pieces)["time"].cast(pa.int64()).to_pylist() == [1_700_000_000_123_456]


def test_the_earliest_and_the_latest_nanosecond_are_times_and_not_infinities() -> None:
    pieces = decode(one_column(Column(name="time", integers=integers(-(2**63), 2**63 - 1)))).tables["readings"]
    with duckdb.connect() as connection:
        connection.register("readings", join(pieces))
        assert connection.execute("SELECT isfinite(time) FROM readings").fetchall() == [(True,), (True,)]


def test_a_table_may_come_in_pieces_with_different_columns() -> None:
    decoded = decode(encode_records({"readings": [{"count": 1}]}) + encode_records({"readings": [{"share": 0.5}]}))
    joined = join(decoded.tables["readings"])
    assert joined.select(["count", "share"]).to_pylist() == [{"count": 1, "share": None}, {"count": None, "share": 0.5}]


PARTS = st.lists(
    st.lists(
        st.fixed_dictionaries(
            {
                "count": st.none() | st.integers(-5, 5),
                "share": st.none() | st.floats(allow_nan=False, allow_infinity=False),
                "name": st.none() | st.text(max_size=3),
            }
        ),
        min_size=1,
        max_size=19,
    ),
    min_size=1,
    max_size=6,
)


@given(messages=PARTS)
def test_messages_of_any_length_are_joined_row_by_row(
    messages: list[list[dict[str, int | float | str | None]]],
) -> None:
    """Bits of validity end within a byte, and columns are missing."""
    pieces = [
        piece for each in messages for piece in decode(encode_records({"readings": each})).tables.get("readings", ())
    ]
    written = [
        row for each in messages if any(value is not None for row in each for value in row.values()) for row in each
    ]
    joined = join(pieces).to_pylist() if pieces else []
    for name in ("count", "share", "name"):
        assert [row.get(name) for row in joined] == [row[name] for row in written]


def test_nan_is_absent_also_beside_null() -> None:
    some = Column(name="share", doubles=struct.pack("<3d", 1, 2, math.nan), validity=b"\x05")
    all_there = Column(name="share", doubles=struct.pack("<2d", math.nan, 4))
    pieces = [*decode(one_column(some, 3)).tables["readings"], *decode(one_column(all_there)).tables["readings"]]
    assert join(pieces)["share"].to_pylist() == [1, None, None, None, 4]


REFUSED: Mapping[str, tuple[Records | bytes, str]] = {
    "no message": (b"\xff\xff\xff", "not a Records message"),
    "too many rows": (
        Records(tables=[Table(name="states", rows=MAX_ROWS), Table(name="states", rows=1)]),
        "rows in one",
    ),
    "no values": (one_column(Column(name="count")), "no values"),
    "the same column twice": (
        Records(tables=[Table(name="states", columns=[Column(name="name", texts=Texts(offsets=offsets(0)))] * 2)]),
        "twice",
    ),
    "too few integers": (one_column(Column(name="count", integers=integers(1))), "8 bytes where the rows need 16"),
    "too many doubles": (one_column(Column(name="share", doubles=doubles(1, 2, 3))), "24 bytes where"),
    "a bitmap that is too long": (
        one_column(Column(name="count", integers=integers(1, 2), validity=b"\xff\xff")),
        "2 bytes of validity for 2 rows",
    ),
    "text in a column of numbers": (
        one_column(Column(name="count", texts=Texts(offsets=offsets(0, 1, 2), utf8=b"12"))),
        "string in a column of int64",
    ),
    "numbers in a column of text": (one_column(Column(name="name", integers=integers(1, 2))), "in a column of string"),
    "doubles in a column of times": (
        one_column(Column(name="time", doubles=doubles(1, 2))),
        "double in a column of timestamp",
    ),
    "a fraction in a column of integers": (one_column(Column(name="count", doubles=doubles(1, 2.5))), "truncated"),
    "a double beyond all integers": (one_column(Column(name="count", doubles=doubles(1, 1e300))), "truncated"),
    "too few offsets": (one_column(name_column(b"a", 0, 1)), "8 bytes where"),
    "offsets that go back": (one_column(name_column(b"abc", 0, 2, 1)), "non-monotonic"),
    "offsets beyond the text": (one_column(name_column(b"abc", 0, 1, 9)), "offset"),
    "negative offsets": (one_column(name_column(b"a", -1, 0, 1)), "offset"),
    "rows of nothing": (Records(tables=[Table(name="states", rows=2**32 - 1)]), "rows in one message"),
    "a character cut in two": (one_column(name_column("é".encode(), 0, 1, 2)), "UTF8"),
    "half a pair of UTF-16": (one_column(name_column(b"\xed\xa0\x80", 0, 0, 3)), "UTF8"),
    "text that is not UTF-8": (one_column(name_column(b"\xff\xfe", 0, 1, 2)), "UTF8"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_rejected_with_the_reason(case: str) -> None:
    records, reason = REFUSED[case]
    with pytest.raises(RejectedRecordsError, match=reason):
        decode(records)


def told(decoder: Decoder, records: bytes) -> object:
    """Return the rows and unknown names of a message, or why it is rejected."""
    decoded = try_decode(decoder, records)
    if not isinstance(decoded, Decoded):
        return decoded
    return {name: join(pieces).to_pylist() for name, pieces in decoded.tables.items()}, decoded.unknown


def try_decode(decoder: Decoder, records: bytes) -> Decoded | str:
    try:
        return decoder.decode(records, session_id=-7, node_id=9)
    except RejectedRecordsError as error:
        return str(error)


COUNTS = Column(name="count", integers=integers(1, 2), validity=b"\1")
LIKE = {
    "as before": [COUNTS],
    "other numbers": [Column(name="count", integers=integers(3, 4), validity=b"\2")],
    "an unknown name": [Column(name="cOunt", integers=integers(1, 2), validity=b"\1")],
    "another column": [Column(name="share", integers=integers(1, 2), validity=b"\1")],
    "other bits of a double": [Column(name="share", doubles=doubles(math.nan, 2), validity=b"\3")],
    "a column twice": [COUNTS, COUNTS],
    "a text": [COUNTS, name_column(b"abcd", 0, 1, 4)],
    "another text": [COUNTS, name_column(b"efgh", 0, 3, 4)],
    "no UTF-8": [COUNTS, name_column(b"\xff\xff\xff\xff", 0, 1, 4)],
    "offsets beyond": [COUNTS, name_column(b"abcd", 0, 1, 9)],
}


@pytest.mark.parametrize("order", [list(LIKE), list(reversed(LIKE))], ids=["as listed", "reversed"])
def test_a_message_of_a_known_layout_is_decoded_as_by_a_new_decoder(
    order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layouts, "_LEARN_EVERY", 1)
    messages = [
        Records(tables=[Table(name="readings", rows=2, columns=LIKE[each]), Table(name="else", rows=1)])
        for each in order * 3
    ]
    decoder = Decoder(TABLES)
    for each in (message.SerializeToString() for message in messages):
        assert told(decoder, each) == told(Decoder(TABLES), each)


def test_like_messages_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "_LEARN_EVERY", 1)
    decoder = Decoder(TABLES)
    first, second, third = (one_column(Column(name="count", integers=integers(each, 0))) for each in range(3))
    for each in (first, second):  # the first size of its kind may not come again
        decoder.decode(each.SerializeToString(), session_id=1, node_id=2)
    monkeypatch.setattr(decode_module, "records_pb2", None)
    decoded = decoder.decode(third.SerializeToString(), session_id=1, node_id=2)
    assert join(decoded.tables["readings"])["count"].to_pylist() == [2, 0]


WITH_COUNTS = one_column(COUNTS).tables[0].SerializeToString()
NAME = b"\x0a\x08readings"
WITHOUT_BYTES = b"\x1a\x09\x0a\x05count\x22\x00"


# What a layout misreads would be rows without bytes, and numbers from elsewhere in memory.
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(WITH_COUNTS + b"\x0a\x04else", id="a second name"),
        pytest.param(WITH_COUNTS + b"\x10\1", id="a second count of rows"),
        pytest.param(WITH_COUNTS + b"\x18\1", id="a column of another type"),
        pytest.param(NAME + b"\x12\1\5" + WITHOUT_BYTES, id="rows of another type"),
        pytest.param(NAME + b"\x10\x80\x80\x80\x80\x10" + WITHOUT_BYTES, id="rows beyond 32 bits"),
        pytest.param(NAME + b"\x10\2\x19\x0a\x04time\x22\x00", id="a column of eight bytes"),
        pytest.param(NAME + b"\x10\2\x1a\7\x0dtime\x22\x00", id="a name of another type"),
    ],
)
def test_a_message_that_only_protobuf_understands_is_parsed_each_time(
    content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layouts, "_LEARN_EVERY", 1)
    records = b"\x0a" + bytes([len(content)]) + content
    decoder = Decoder(TABLES)
    for _ in range(3):
        assert try_decode(decoder, records) == try_decode(Decoder(TABLES), records)
