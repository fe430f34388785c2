"""Whose a run is: of the node that said first what it is. No other node writes a row of it."""

from collections.abc import Iterable

import duckdb
import pyarrow as pa

from gpuagent_collector.errors import RejectedRecordsError
from gpuagent_collector.ingest.decode import Decoded

_KEPT_RUNS = 100_000
"""So many owners are kept in memory; of others the store is asked again."""

_OWNERS = "SELECT run_id, min_by(node_id, time) FROM run_requests WHERE run_id = ANY(?) GROUP BY run_id"


class RunOwners:
    """Knows the nodes of runs. It belongs to the thread that writes the store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._nodes: dict[str, int] = {}
        """Run → node, the last used last."""

    def check(self, decoded: Decoded, node_id: int) -> None:
        """Refuse rows of another node's runs, and note the runs that these rows bring.

        Raises:
            RejectedRecordsError: there are such rows.
            duckdb.Error: the store cannot be read.
        """
        named = {run_id for tables in decoded.tables.values() for table in tables for run_id in _run_ids(table)}
        if not named:
            return
        self._look_up(named - self._nodes.keys())
        for run_id in named:
            if self._nodes.get(run_id, node_id) != node_id:
                raise RejectedRecordsError(f"run {run_id[:100]} is another node's")
        self._keep({run_id: node_id for table in decoded.tables.get("run_requests", ()) for run_id in _run_ids(table)})
        self._keep(dict.fromkeys(named & self._nodes.keys(), node_id))

    def _look_up(self, run_ids: Iterable[str]) -> None:
        unknown = list(run_ids)
        if unknown:
            self._keep(dict(self._connection.execute(_OWNERS, [unknown]).fetchall()))

    def _keep(self, nodes: dict[str, int]) -> None:
        for run_id in nodes:
            self._nodes.pop(run_id, None)
        self._nodes |= nodes
        while len(self._nodes) > _KEPT_RUNS:
            del self._nodes[next(iter(self._nodes))]


def _run_ids(table: pa.Table) -> Iterable[str]:
    if "run_id" not in table.column_names:
        return ()
    return [run_id for run_id in table["run_id"].unique().to_pylist() if run_id is not None]
