"""Lines of a run's events files: rows that the agent can encode and the collector takes, or a line that is counted."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuagent.runs.events import EventRow, EventTailer
from gpuagent.sampling.rows import encode_records
from gpuagent_collector.ingest.decode import Decoder
from tests.fuzz.records import newest_tables
from tests.fuzz.tally import Attempt

TOKENS = (
    b'"event":|"t":|"step"|"result"|"op"|"device"|"phase"|"name":|"value":|"uuid":|"items":|'
    b"1e308|NaN|-Infinity|\\ud800|\\u0000|9223372036854775808|null"
).split(b"|")


@contextmanager
def opened(folder: Path) -> Iterator[Attempt]:
    """Read one file again and again, and decode what comes of it as the collector does."""
    decoder = Decoder(newest_tables())
    file = folder / "events.0.0.jsonl"

    def attempt(data: bytes) -> None:
        file.write_bytes(data + b"\n")
        rows = list(EventTailer("run", folder).read_new())
        decoded = decoder.decode(encode_records(_by_table(rows)), session_id=1, node_id=1)
        assert not decoded.unknown
        assert sum(piece.rows for pieces in decoded.tables.values() for piece in pieces) == len(rows)

    yield attempt


def _by_table(rows: list[EventRow]) -> dict[str, list[dict[str, float | int | str | None]]]:
    tables: dict[str, list[dict[str, float | int | str | None]]] = {}
    for each in rows:
        tables.setdefault(each.table, []).append(dict(each.row))
    return tables
