"""Rows that no genuine agent sends, among genuine ones: as a store may hold them that was written before the checks."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any

import duckdb
import pyarrow as pa

from gpuagent_collector.store.columns import Columns, agent_tables
from tests.support.commands import HOSTILE

Row = dict[str, Any]

_TEXTS = (
    *(
        None,
        "",
        " ",
        "\0",
        HOSTILE,
        "x" * 1000,
        "é🜂",
        "null",
        "nan",
        "inf",
        "-1",
        "0",
        "1e999",
        "true",
        "=1+1",
        "%s{}'\"",
    ),
    *("queued", "running", "succeeded", "lost", "phase", "measure", "warmup", "output", "throughput", "items", "bytes"),
)
_JSON = (
    *(None, "null", "1", "true", '"text"', "[]", "[1, 2]", '["a", null]', '[["a"]]', "{}", '{"a": {"b": [1]}}'),
    *(
        '{"ranks": "x"}',
        '{"ranks": 1e300, "batch-size": -1}',
        '{"ranks": true}',
        '{"nodes": {}}',
        '{"": ""}',
        '{"a": null}',
    ),
    *(
        '{"rate": "fast", "clients": []}',
        '{"server": 1, "model": [1]}',
        '{"\\u001b[2J": "\\u0000"}',
        '{"\\ud800": "\\udfff"}',
    ),
    *(
        '{"until": [], "imported": 1, "pod_uid": {}}',
        '{"tail": 1}',
        '{"step": "x", "value": "y"}',
        "[" * 500 + "]" * 500,
    ),
    *(f'{{"a": {"9" * 400}}}', '{"a": 1, "a": 2}'),
)
_INTEGERS = (None, 0, 1, -1, 2, 65_536, 10**12, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63))
_NUMBERS = (None, 0.0, -1.0, 1.0, 1e-300, 5e-324, 1e15, 1e308, -1e308, float("inf"), float("-inf"))
# What a message's nanoseconds hold.
_TIMES = tuple(
    datetime.fromisoformat(text) for text in ("1677-09-22", "1970-01-01", "2030-01-01T12:00:03", "2262-04-11")
)

_VALUES: Mapping[str, Sequence[Any]] = {
    "VARCHAR": _TEXTS,
    "JSON": _JSON,
    "BIGINT": _INTEGERS,
    "DOUBLE": _NUMBERS,
    "TIMESTAMP": (None, *_TIMES),
}
_ARROW = {"BIGINT": pa.int64(), "DOUBLE": pa.float64(), "TIMESTAMP": pa.timestamp("us")}

# Rows added to each table.
_MOST_ROWS = 6


def add_hostile_rows(connection: duckdb.DuckDBPyConnection, random: Random) -> None:
    """Add rows to every table that agents fill: copies of its own, each with some values replaced, and made-up ones."""
    for table, columns in agent_tables(connection).items():
        stamped = {"session_id": "BIGINT", "node_id": "BIGINT", **columns}
        sample = f"reservoir({_MOST_ROWS} ROWS) REPEATABLE ({random.randrange(99)})"
        sql = f'FROM (FROM "{table}" LIMIT 5000) USING SAMPLE {sample}'
        known: list[Row] = connection.execute(sql).to_arrow_table().to_pylist()
        rows = [_damage(dict(random.choice(known)) if known else {}, stamped, random) for _ in range(_MOST_ROWS)]
        insert_rows(connection, table, stamped, rows[: random.randrange(_MOST_ROWS + 1)])


def insert_rows(connection: duckdb.DuckDBPyConnection, table: str, columns: Columns, rows: Sequence[Row]) -> None:
    """Insert rows; text that is no JSON is stored as a text in JSON."""
    arrow = {
        name: pa.array([row.get(name) for row in rows], _ARROW.get(data_type, pa.string()))
        for name, data_type in columns.items()
    }
    stored = ", ".join(
        f'CASE WHEN json_valid("{name}") THEN "{name}" ELSE to_json("{name}") END AS "{name}"'
        if data_type == "JSON"
        else f'"{name}"'
        for name, data_type in columns.items()
    )
    connection.register("hostile", pa.table(arrow))
    connection.execute(f'INSERT INTO "{table}" BY NAME SELECT {stored} FROM hostile')
    connection.unregister("hostile")


def _damage(row: Row, columns: Columns, random: Random) -> Row:
    """Replace a few values; of a row that is made up, all."""
    names = list(columns)
    changed = random.sample(names, min(len(names), random.randrange(1, 4))) if row else names
    for name in changed:
        row[name] = random.choice(_VALUES[columns[name]])
    if row.get("time") and random.random() < 0.3:
        row["time"] += timedelta(seconds=random.randrange(-20, 20)) if row["time"] not in _TIMES else timedelta(0)
    return row
