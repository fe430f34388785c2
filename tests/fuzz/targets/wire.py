"""Telemetry messages as they come off the wire: decoded into rows that fit the store, or rejected in words."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from gpuagent_collector.errors import RejectedRecordsError
from gpuagent_collector.ingest.checks import check_rows
from gpuagent_collector.ingest.decode import Decoded, Decoder, join
from tests.fuzz.records import made_records, newest_tables
from tests.fuzz.tally import Attempt

TOKENS = (b"host_samples", b"gpu_samples", b"steps", b"time", b"cpu_percent", b"run_id", b"\x00\x00\x00\x00")

_STAMPED = {"session_id": 7, "node_id": 9}


@contextmanager
def opened(folder: Path) -> Iterator[Attempt]:
    """Decode for the newest schema. No store is needed."""
    tables = newest_tables()
    decoder = Decoder(tables)

    def attempt(data: bytes) -> None:
        with suppress(RejectedRecordsError):
            decoded = decoder.decode(made_records(data, tables), **_STAMPED)
            check_rows(decoded)
            _check(decoded)

    yield attempt


def _check(decoded: Decoded) -> None:
    for pieces in decoded.tables.values():
        table = join(pieces)
        table.validate(full=True)
        for name, value in _STAMPED.items():
            assert set(table[name].to_pylist()) == {value}
        for column in table.columns:
            assert not pa.types.is_floating(column.type) or pc.all(pc.is_finite(column), min_count=0).as_py()
