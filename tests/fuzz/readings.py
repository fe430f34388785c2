"""The path of a source's readings to the spool."""

from collections.abc import Iterable

from gpuagent.sampling.rows import encode_records
from gpuagent.sources.source import Reading, Value


def encode_readings(readings: Iterable[Reading]) -> None:
    """Encode what was read, each column with whatever it holds in other rows."""
    tables: dict[str, list[dict[str, Value]]] = {}
    for reading in readings:
        tables.setdefault(reading.table, []).append(dict(reading.values))
    encode_records(tables)
