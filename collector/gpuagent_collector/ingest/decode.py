"""Rows of messages as Arrow's columns, checked."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from gpuagent_collector.errors import RejectedRecordsError
from gpuagent_collector.ingest.layouts import Layouts, TableLayout, count_parts
from gpuagent_collector.store.columns import STAMPED, Columns
from gpuagent_proto.v1 import records_pb2

# Limits of one message: rows in all tables, tables, columns of all tables, and runs that it names. A genuine agent
# sends at most 5,000 rows, and each table once.
MAX_ROWS = 1_000_000
MAX_TABLES = 256
MAX_COLUMNS = 4_096
MAX_RUNS = 10_000


# A row costs DuckDB the same however little is in it. Each has a time and a value; of a few rows names take more.
_LEAST_BYTES_A_ROW = 16
_FREE_ROWS = 1000

# Tables, columns and their fields in a message. Those of a shorter one take 40 MiB at most, and are counted afterwards.
_MAX_PARTS = 4 * MAX_COLUMNS
_UNCOUNTED_BYTES = 1024 * 1024


class _Kind(NamedTuple):
    """The Arrow type of a column's decoded values, and the member of Column.values that holds them."""

    data_type: pa.DataType
    member: str


# By the column's type in DuckDB.
_KINDS: Mapping[str, _Kind] = {
    "BIGINT": _Kind(pa.int64(), "integers"),
    "DOUBLE": _Kind(pa.float64(), "doubles"),
    "TIMESTAMP": _Kind(pa.timestamp("ns"), "integers"),
    "VARCHAR": _Kind(pa.string(), "texts"),
    "JSON": _Kind(pa.string(), "texts"),
}

_INVITATION = "invitation"

# Table → columns that the collector reads but does not store.
_NOT_STORED: Mapping[str, dict[str, _Kind]] = {"run_requests": {_INVITATION: _KINDS["VARCHAR"]}}

# Member of Column.values → layout of its bytes.
_ON_THE_WIRE: Mapping[str, pa.DataType] = {"doubles": pa.float64(), "integers": pa.int64(), "texts": pa.string()}

STORED_TIME = pa.timestamp("us")

# Memory of the rows that are joined at once. The largest group of commits takes a third of it, if its messages have the
# same columns.
_JOINED_BYTES = 128 * 1024 * 1024

# The stamps of a row, and what joining needs for each.
_BYTES_A_ROW = 40


class _Column(NamedTuple):
    """A column of a message: the member of Column.values that it has, and its bytes; `utf8` is of texts."""

    name: str
    member: str | None
    content: bytes
    validity: bytes
    utf8: bytes


class _Numbers(NamedTuple):
    """The numbers of a column, 64 bits a row, and a bit a row, 1 where there is one; no bits: all rows have one."""

    data_type: pa.DataType
    content: bytes
    validity: bytes


# The name of a table, its rows, its columns that need no check, and others.
_Table = tuple[str, int, dict[str, _Numbers], Iterable[_Column]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Consecutive rows of one table in one message, for `join`."""

    session_id: int
    node_id: int
    rows: int
    numbers: Mapping[str, _Numbers]
    texts: Mapping[str, "pa.Array[Any]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """The rows of one message by table, and the names that the collector does not know."""

    tables: Mapping[str, list[Piece]]
    # Names of tables, and of columns as `table.column`.
    unknown: frozenset[str] = field(default_factory=frozenset)
    # The node that sent them.
    node_id: int
    # The runs that any row names.
    run_ids: frozenset[str] = field(default_factory=frozenset)
    # Run of several nodes → invitation of this node. Never stored: readers of the store must not have it.
    invitations: Mapping[str, str] = field(default_factory=dict)


class Decoder:
    """A decoder from the payload of a Batch to rows that fit the store's tables."""

    def __init__(self, tables: Mapping[str, Columns]) -> None:
        self._kinds = {
            table: {name: _KINDS[data_type] for name, data_type in columns.items()} | _NOT_STORED.get(table, {})
            for table, columns in tables.items()
        }
        self._layouts = Layouts(self._find_type)

    def _find_type(self, table: str, column: str, member: str) -> pa.DataType | None:
        kind = self._kinds.get(table, {}).get(column)
        return kind.data_type if kind and kind.member == member != "texts" else None

    def decode(self, records: bytes, *, session_id: int, node_id: int) -> Decoded:
        """Return the rows in `records`, stamped with the session and node that the stream belongs to.

        Raises RejectedRecordsError: the records do not fit the store, or are not records at all.
        """
        layout = self._layouts.find(records)
        message = _parse(records) if layout is None else _cut(records, layout)
        tables: dict[str, list[Piece]] = {}
        unknown: set[str] = set()
        invitations: dict[str, str] = {}
        for table, rows, numbers, columns in message:
            known = self._kinds.get(table)
            if known is None:
                unknown.add(table[:100])
                continue
            texts = _decode_columns(table, rows, columns, known, unknown, numbers)
            asked = texts.pop(_INVITATION, None)
            if asked is not None and "run_id" in texts:
                pairs = zip(texts["run_id"].to_pylist(), asked.to_pylist(), strict=True)
                invitations |= {run_id: each for run_id, each in pairs if run_id is not None and each is not None}
            if rows and (numbers or texts):
                piece = Piece(session_id=session_id, node_id=node_id, rows=rows, numbers=numbers, texts=texts)
                tables.setdefault(table, []).append(piece)
        if layout is None:
            self._layouts.learn(records)
        return Decoded(
            tables=tables,
            unknown=frozenset(unknown),
            node_id=node_id,
            run_ids=_find_runs(piece for pieces in tables.values() for piece in pieces),
            invitations=invitations,
        )


def _parse(records: bytes) -> Iterator[_Table]:
    """Yield the tables of a message, whose size is right."""
    try:
        if len(records) > _UNCOUNTED_BYTES and count_parts(records, (1, 3), _MAX_PARTS) > _MAX_PARTS:
            raise RejectedRecordsError(f"more than {_MAX_PARTS:,} fields in one message")
        message = records_pb2.Records.FromString(records)
    except (DecodeError, ValueError) as error:
        raise RejectedRecordsError("not a Records message") from error
    _check_count("tables", len(message.tables), MAX_TABLES)
    _check_count("columns", sum(len(table.columns) for table in message.tables), MAX_COLUMNS)
    most_rows = min(MAX_ROWS, _FREE_ROWS + len(records) // _LEAST_BYTES_A_ROW)
    _check_count("rows", sum(table.rows for table in message.tables), most_rows)
    for table in message.tables:
        yield table.name, table.rows, {}, map(_read_column, table.columns)


def _read_column(column: records_pb2.Column) -> _Column:
    member = column.WhichOneof("values")
    if member == "texts":
        return _Column(column.name, member, column.texts.offsets, column.validity, column.texts.utf8)
    content = b"" if member is None else getattr(column, member)
    return _Column(column.name, member, content, column.validity, b"")


def _cut(records: bytes, layout: Sequence[TableLayout]) -> Iterator[_Table]:
    """Yield the tables of a message that is laid out like one whose size was right."""
    for table in layout:
        numbers = {
            name: _Numbers(data_type, records[content], records[validity])
            for name, data_type, content, validity in table.numbers
        }
        others = (
            _Column(name, member, records[content], records[validity], records[utf8])
            for name, member, content, validity, utf8 in table.others
        )
        yield table.name, table.rows, numbers, others


def _check_count(noun: str, count: int, limit: int) -> None:
    if count > limit:
        raise RejectedRecordsError(f"{count:,} {noun} in one message; the limit is {limit:,}")


def _find_runs(pieces: Iterable[Piece]) -> frozenset[str]:
    run_ids: set[str] = set()
    for piece in pieces:
        if "run_id" not in piece.texts:
            continue
        named = piece.texts["run_id"].unique()
        _check_count("runs", len(named), MAX_RUNS)
        run_ids.update(text for text in named.to_pylist() if text is not None)
    _check_count("runs", len(run_ids), MAX_RUNS)
    return frozenset(run_ids)


def split_pieces(pieces: Iterable[Piece]) -> Iterator[Sequence[Piece]]:
    """Yield the pieces of one table in parts to be joined, each of bounded memory whatever columns its pieces have."""
    part: list[Piece] = []
    names: set[str] = set()
    rows = 0
    for piece in pieces:
        names.update(piece.numbers, piece.texts)
        rows += piece.rows
        if part and rows * (8 * len(names) + _BYTES_A_ROW) > _JOINED_BYTES:
            yield part
            part, names, rows = [], {*piece.numbers, *piece.texts}, piece.rows
        part.append(piece)
    if part:
        yield part


def join(pieces: Sequence[Piece]) -> pa.Table:
    """Return the rows of pieces of one table, stamped. NaN, infinity and what a missing column would have are NULL.

    DuckDB reads one long chunk ten times faster than many short ones.
    """
    rows = np.array([piece.rows for piece in pieces])
    # Each piece's bits of validity begin with a byte.
    sizes = (rows + 7) // 8
    skipped = np.cumsum(8 * sizes - rows) - (8 * sizes - rows)
    bits_of_rows = np.arange(rows.sum()) + np.repeat(skipped, rows)
    columns: dict[str, pa.Array[Any]] = {}
    for name, data_type in {name: each.data_type for piece in pieces for name, each in piece.numbers.items()}.items():
        numbers = [
            piece.numbers.get(name) or _Numbers(data_type, bytes(8 * piece.rows), bytes(size))
            for piece, size in zip(pieces, sizes, strict=True)
        ]
        columns[name] = _join_numbers(numbers, sizes, bits_of_rows)
    for name in dict.fromkeys(name for piece in pieces for name in piece.texts):
        texts = (piece.texts.get(name) for piece in pieces)
        columns[name] = pa.concat_arrays(
            [
                pa.nulls(piece.rows, pa.string()) if each is None else each
                for piece, each in zip(pieces, texts, strict=True)
            ]
        )
    for name in STAMPED:
        columns[name] = pa.array(np.repeat([getattr(piece, name) for piece in pieces], rows), pa.int64())
    return pa.table(columns)


def _join_numbers(
    numbers: Sequence[_Numbers], sizes: NDArray[np.int64], bits_of_rows: NDArray[np.int64]
) -> "pa.Array[Any]":
    data_type = numbers[0].data_type
    content = b"".join(each.content for each in numbers)
    has_value: NDArray[np.bool_] | None = None
    if any(each.validity for each in numbers):
        bits = b"".join(each.validity or b"\xff" * int(size) for each, size in zip(numbers, sizes, strict=True))
        has_value = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")[bits_of_rows].view(np.bool_)
    if pa.types.is_floating(data_type) and not (is_finite := np.isfinite(np.frombuffer(content, "<f8"))).all():
        has_value = is_finite if has_value is None else has_value & is_finite
    validity = None if has_value is None else pa.py_buffer(np.packbits(has_value, bitorder="little").tobytes())
    joined = pa.Array.from_buffers(data_type, bits_of_rows.size, [validity, pa.py_buffer(content)])
    return joined.cast(STORED_TIME, safe=False) if pa.types.is_timestamp(data_type) else joined


def _decode_columns(
    table: str,
    rows: int,
    columns: Iterable[_Column],
    known: Mapping[str, _Kind],
    unknown: set[str],
    numbers: dict[str, _Numbers],
) -> dict[str, "pa.Array[Any]"]:
    """Return the texts of columns, and add their numbers to `numbers`."""
    texts: dict[str, pa.Array[Any]] = {}
    for column in columns:
        name = column.name
        kind = known.get(name)
        if kind is None:
            unknown.add(f"{table}.{name[:100]}")
            continue
        if name in numbers or name in texts:
            raise RejectedRecordsError(f"{table}.{name} appears twice")
        try:
            if column.validity and len(column.validity) != (rows + 7) // 8:
                raise ValueError(f"{len(column.validity)} bytes of validity for {rows} rows")
            size_bytes = 4 * (rows + 1) if column.member == "texts" else 8 * rows
            if column.member and len(column.content) != size_bytes:
                raise ValueError(f"{len(column.content)} bytes where the rows need {size_bytes}")
            if kind.member == "texts":
                texts[name] = _decode_array(column, rows, kind)
            elif column.member == kind.member:
                numbers[name] = _Numbers(kind.data_type, column.content, column.validity)
            else:
                numbers[name] = _convert(_decode_array(column, rows, kind), kind)
        except (pa.ArrowException, ValueError) as error:
            raise RejectedRecordsError(f"{table}.{name}: {error}") from error
    return texts


def _decode_array(column: _Column, rows: int, kind: _Kind) -> "pa.Array[Any]":
    """Return texts, or numbers that came as integers for a column of doubles or the other way round."""
    if column.member is None:
        raise ValueError("no values")
    buffers = [pa.py_buffer(column.validity) if column.validity else None, pa.py_buffer(column.content)]
    if column.member == "texts":
        buffers.append(pa.py_buffer(column.utf8))
    values = pa.Array.from_buffers(_ON_THE_WIRE[column.member], rows, buffers)
    values.validate(full=True)  # offsets and UTF-8
    if values.type != kind.data_type and not {values.type, kind.data_type} <= {pa.int64(), pa.float64()}:
        raise ValueError(f"{values.type} in a column of {kind.data_type}")
    return values


def _convert(values: "pa.Array[Any]", kind: _Kind) -> _Numbers:
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_finite(values), values, None)
    # Only a number's last bits can be lost; a double fits an integer column only if it is whole.
    cast: pa.Array[Any] = values.cast(kind.data_type, safe=pa.types.is_integer(kind.data_type))
    there = np.packbits(cast.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
    return _Numbers(kind.data_type, cast.fill_null(0).to_numpy().tobytes(), there.tobytes())
