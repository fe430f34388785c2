"""A check that the store has every acknowledged row exactly once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from benchmarks.load.agents import Tally
from benchmarks.load.plan import SimulatedNode
from gpuagent_common.keys import key
from tests.fault.invariants import Findings, Flush, Stored, compare, count

_NODES_AT_ONCE = 50

_ROWS = """
SELECT session_id, 0 AS device_id, epoch_us(time) AS micros FROM host_samples WHERE session_id = ANY($sessions)
UNION ALL
SELECT session_id, device_id, epoch_us(time) FROM gpu_samples WHERE session_id = ANY($sessions)
"""

_TICKS_A_SERIES = 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The stored rows beside the acknowledged ones."""

    # Acknowledged and looked for.
    rows: int
    lost: int
    duplicated: int
    # Rows of `gaps`: nothing may have been given up.
    gaps: int
    store_bytes: int

    @property
    def is_good(self) -> bool:
        """True if every row is stored exactly once."""
        return not (self.lost or self.duplicated or self.gaps)


def verify(store: Path, nodes: Sequence[SimulatedNode], tallies: Mapping[int, Tally]) -> Verdict:
    """Compare the store, which nobody may have open, with what was acknowledged to the agents."""
    findings: list[Findings] = []
    with duckdb.connect(str(store), read_only=True) as connection:
        connection.execute("SET enable_progress_bar = false")
        for part in _parts(nodes):
            found = _numbers(connection, part)
            findings += [_compare(node, tallies[node.index], found[key(node.session_uuid)]) for node in part]
        gaps = connection.execute("SELECT count(*) FROM gaps").fetchall()[0][0]
    return Verdict(
        rows=sum(tallies[node.index].acknowledged_ticks * (1 + node.gpus) for node in nodes),
        lost=sum(len(each.lost) for each in findings),
        duplicated=sum(len(each.duplicated) for each in findings),
        gaps=gaps,
        store_bytes=store.stat().st_size,
    )


def _parts(nodes: Sequence[SimulatedNode]) -> Iterator[Sequence[SimulatedNode]]:
    rest = iter(nodes)
    while part := list(islice(rest, _NODES_AT_ONCE)):
        yield part


def _numbers(connection: duckdb.DuckDBPyConnection, nodes: Sequence[SimulatedNode]) -> dict[int, NDArray[Any]]:
    """Return the numbers of the rows that are stored, by session: of each series one after the other, from 0 on."""
    sessions = [key(node.session_uuid) for node in nodes]
    rows = connection.execute(_ROWS, {"sessions": sessions}).to_arrow_table()
    columns = {name: rows[name].to_numpy() for name in rows.column_names}
    order = np.argsort(columns["session_id"], kind="stable")
    session_ids, device_ids, micros = (columns[name][order] for name in ("session_id", "device_id", "micros"))
    numbers = {}
    for node, session_id in zip(nodes, sessions, strict=True):
        own = slice(*np.searchsorted(session_ids, [session_id, session_id + 1]))
        ticks = (micros[own] - node.start_unix_micros) // node.period_micros
        numbers[session_id] = _series(node, device_ids[own]) * _TICKS_A_SERIES + ticks
    return numbers


def _series(node: SimulatedNode, device_ids: NDArray[Any]) -> NDArray[Any]:
    """Return 0 for rows of the host, and 1 + index for those of a GPU."""
    series = np.zeros(len(device_ids), np.int64)
    for gpu in range(node.gpus):
        series[device_ids == key(node.gpu_uuid(gpu))] = 1 + gpu
    return series


def _compare(node: SimulatedNode, tally: Tally, numbers: NDArray[Any]) -> Findings:
    firsts = range(0, (1 + node.gpus) * _TICKS_A_SERIES, _TICKS_A_SERIES)
    made = [
        Flush(numbers=range(first, first + tally.acknowledged_ticks), from_unix_nano=0, to_unix_nano=0)
        for first in firsts
        if tally.acknowledged_ticks
    ]
    stored = count(numbers.tolist())
    return compare(made, Stored(samples=stored, records=stored))
