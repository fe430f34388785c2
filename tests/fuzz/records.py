"""Telemetry messages made of the bytes of an input: most fit the schema, each may be wrong in any of its parts."""

from collections.abc import Iterable, Mapping
from contextlib import closing

import duckdb

from gpuagent.sampling.rows import encode_records
from gpuagent.sources.source import Reading, Value
from gpuagent_collector.schema import load_migrations, migrate
from gpuagent_collector.store.columns import Columns, agent_tables
from gpuagent_collector.times import utc_now
from gpuagent_proto.v1 import records_pb2
from tests.fuzz.choices import Choices

# An input that begins with this is a message as it is.
_RAW = ord("r")


def encode_readings(readings: Iterable[Reading]) -> None:
    """Encode what sources have read, each column with whatever it holds in other rows."""
    tables: dict[str, list[dict[str, Value]]] = {}
    for reading in readings:
        tables.setdefault(reading.table, []).append(dict(reading.values))
    encode_records(tables)


def made_records(data: bytes, tables: Mapping[str, Columns]) -> bytes:
    """Return a serialised Records; of an input that begins with `r` the rest as it stands."""
    if data[:1] == bytes([_RAW]):
        return data[1:]
    choices = Choices(data)
    records = records_pb2.Records()
    for _ in range(1 + choices.below(3)):
        add_table(records, choices, tables)
    return records.SerializeToString()


def newest_tables() -> Mapping[str, Columns]:
    """Return the tables of the newest schema that agents fill."""
    with closing(duckdb.connect()) as connection:
        migrate(connection, load_migrations(), utc_now())
        return agent_tables(connection)


def add_table(records: records_pb2.Records, choices: Choices, tables: Mapping[str, Columns]) -> None:
    """Add a table of the schema, or one that nobody knows."""
    name = choices.one_of(sorted(tables))
    known = tables[name]
    rows = choices.below(9)
    table = records.tables.add(name=choices.text() if _seldom(choices) else name, rows=rows)
    for _ in range(1 + choices.below(6)):
        column = choices.one_of(list(known))
        _fill(table.columns.add(name=choices.text() if _seldom(choices) else column), choices, rows, known[column])
    if _seldom(choices):
        table.rows = abs(choices.integer()) % 2**32


def _fill(column: records_pb2.Column, choices: Choices, rows: int, data_type: str) -> None:
    if choices.below(2):
        column.validity = choices.take((rows + 7) // 8 + _seldom(choices))
    member = {"DOUBLE": "doubles", "BIGINT": "integers", "TIMESTAMP": "integers"}.get(data_type, "texts")
    if _seldom(choices):
        member = choices.one_of(("doubles", "integers", "texts", "none"))
    if member == "texts":
        _fill_texts(column, choices, rows)
    elif member != "none":
        setattr(column, member, choices.take(8 * rows + _seldom(choices)))


def _fill_texts(column: records_pb2.Column, choices: Choices, rows: int) -> None:
    pieces = [choices.piece() for _ in range(rows)]
    ends = [sum(map(len, pieces[:count])) for count in range(rows + 1)]
    if _seldom(choices):
        ends = [choices.integer() % 2**32 for _ in ends]
    column.texts.offsets = b"".join(end.to_bytes(4, "little") for end in ends)
    column.texts.utf8 = b"".join(pieces)


def _seldom(choices: Choices) -> bool:
    return choices.below(256) > 240
