"""Layouts of serialised Records: most messages of agents differ in their values alone, so one is parsed for all."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gpuagent_proto.v1 import records_pb2

# Sizes of messages whose layouts are kept, layouts of one size, and bytes of one between its values: 0.3 MiB at most.
_KEPT_SIZES, _KEPT_OF_SIZE, _MAX_SKELETON_BYTES = 128, 2, 4096

# Messages from one that is learnt to the next, which takes several times as long as a parse: no two may be alike.
_LEARN_EVERY = 16

# The number and type of a field of bytes or text: Column.validity and others.
_BYTES = 2

# Column's fields for values, by number.
_MEMBERS = {3: "doubles", 4: "integers", 5: "texts"}


class _Field(NamedTuple):
    """A field of a serialised message: its number and wire type, and the place of its content or number."""

    number: int
    kind: int
    start: int
    stop: int


class ColumnLayout(NamedTuple):
    """The places of a column's values; `texts` have offsets, which `content` is, and bytes in `utf8`."""

    name: str
    member: str
    content: slice
    validity: slice
    utf8: slice


class NumbersLayout(NamedTuple):
    """The places of a column's numbers that fit the store as they are, and their type in it."""

    name: str
    data_type: pa.DataType
    content: slice
    validity: slice


class TableLayout(NamedTuple):
    """The rows of a table in a message, and the places of its columns' values."""

    name: str
    rows: int
    numbers: Sequence[NumbersLayout]
    others: Sequence[ColumnLayout]


class _Layout(NamedTuple):
    """The tables of a message, and the places and content of all bytes that are no values."""

    tables: Sequence[TableLayout]
    places: NDArray[np.intp]
    skeleton: bytes


class Layouts:
    """The layouts of the last messages. What has the same size and the same bytes between its values is like them."""

    def __init__(self, find_type: Callable[[str, str, str], pa.DataType | None]) -> None:
        """Take a function of a table, a column and its member: the type that its numbers have as they are, or None."""
        self._find_type = find_type
        # Size of a message → its layouts, empty at the first one: many have a size that does not come again.
        self._of_size: OrderedDict[int, list[_Layout]] = OrderedDict()
        self._since_learnt = 0

    def find(self, records: bytes) -> Sequence[TableLayout] | None:
        """Return the tables of a message that is like an earlier one, or None."""
        self._since_learnt += 1
        content = np.frombuffer(records, np.uint8)
        for layout in self._of_size.get(len(records), ()):
            if content[layout.places].tobytes() == layout.skeleton:
                self._of_size.move_to_end(len(records))
                return layout.tables
        return None

    def learn(self, records: bytes) -> None:
        """Keep the layout of a message that fits the store."""
        known = self._of_size.get(len(records))
        if known is None:
            self._of_size[len(records)] = []
            while len(self._of_size) > _KEPT_SIZES:
                self._of_size.popitem(last=False)
            return
        if self._since_learnt < _LEARN_EVERY:
            return
        self._since_learnt = 0
        message = records_pb2.Records.FromString(records)
        message.DiscardUnknownFields()
        if message.SerializeToString() != records:
            return  # protobuf has rules for such messages, which no agent sends
        try:
            read = [_read_table(records, each) for each in read_fields(records)]
        except (ValueError, KeyError):
            return  # without a name, rows or values
        is_value = np.zeros(len(records), np.bool_)
        tables = []
        for name, rows, columns in read:
            for column in columns:
                for place in (column.content, column.validity, column.utf8):
                    is_value[place] = True
            tables.append(self._split(name, rows, columns))
        places = np.flatnonzero(~is_value)
        if len(places) > _MAX_SKELETON_BYTES:
            return
        skeleton = np.frombuffer(records, np.uint8)[places].tobytes()
        known.insert(0, _Layout(tables, places, skeleton))
        del known[_KEPT_OF_SIZE:]

    def _split(self, table: str, rows: int, columns: Sequence[ColumnLayout]) -> TableLayout:
        numbers: list[NumbersLayout] = []
        others: list[ColumnLayout] = []
        for each in columns:
            data_type = self._find_type(table, each.name, each.member)
            if data_type is None:
                others.append(each)
            else:
                numbers.append(NumbersLayout(each.name, data_type, each.content, each.validity))
        return TableLayout(table, rows, numbers, others)


def count_parts(content: bytes, path: tuple[int, ...], limit: int, within: slice | None = None) -> int:
    """Return the number of fields in a serialised message, with those of the messages that it has along a path.

    A count before a message is parsed: a part of two bytes becomes an object of fifty.

    Args:
        path: the number of the field whose messages are counted too, and so on below it.
        limit: the number beyond which it stops.
        within: the place of the message in `content`; None: all of it.

    Raises:
        ValueError: it is no message.
    """
    count = 0
    for each in read_fields(content, within):
        count += 1
        if path and each.kind == _BYTES and each.number == path[0]:
            count += count_parts(content, path[1:], limit - count, slice(each.start, each.stop))
        if count > limit:
            break
    return count


def read_fields(content: bytes, within: slice | None = None) -> Iterator[_Field]:
    """Yield the fields of a serialised message; raise ValueError where it is none."""
    position, end = (0, len(content)) if within is None else (within.start, within.stop)
    while position < end:
        tag, start = _read_varint(content, position)
        match tag & 7:
            case 0:
                _, position = _read_varint(content, start)
            case 1:
                position = start + 8
            case 2:
                length, start = _read_varint(content, start)
                position = start + length
            case 5:
                position = start + 4
            case _:
                raise ValueError("an unknown kind of field")
        yield _Field(tag >> 3, tag & 7, start, position)


def _read_varint(content: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    for byte in content[position : position + 10]:
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError("a number without an end")


def _read_table(records: bytes, field: _Field) -> tuple[str, int, Sequence[ColumnLayout]]:
    """Return a table's name, rows and columns, as protobuf writes them."""
    several = list(read_fields(records, slice(field.start, field.stop)))
    fields = {each.number: each for each in several}
    rows, _ = _read_varint(records, fields[2].start)
    return _read_text(records, fields[1]), rows, [_read_column(records, each) for each in several if each.number == 3]


def _read_column(records: bytes, field: _Field) -> ColumnLayout:
    fields = {each.number: each for each in read_fields(records, slice(field.start, field.stop))}
    (number,) = fields.keys() & _MEMBERS.keys()
    content, nothing = fields[number], slice(0, 0)
    texts: dict[int, _Field] = {}
    if _MEMBERS[number] == "texts":
        texts = {each.number: each for each in read_fields(records, slice(content.start, content.stop))}
        content = texts[1]
    places = (content, fields.get(2), texts.get(2))
    slices = (nothing if each is None else slice(each.start, each.stop) for each in places)
    return ColumnLayout(_read_text(records, fields[1]), _MEMBERS[number], *slices)


def _read_text(records: bytes, field: _Field) -> str:
    return records[field.start : field.stop].decode()
