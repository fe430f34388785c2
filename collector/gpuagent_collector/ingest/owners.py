"""Owners of runs: the first node that described a run, and invited nodes. No other node writes a row of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import duckdb
import pyarrow as pa

from gpuagent_collector.errors import RejectedRecordsError
from gpuagent_collector.ingest.decode import Decoded, join
from gpuagent_common.invitation import is_invited

# Runs whose nodes are kept in memory; others are looked up in the store again.
_KEPT_RUNS = 100_000

_MEMBERS = """
SELECT run_id, list(DISTINCT node_id), coalesce(min_by(nodes, time), 1)
FROM run_requests WHERE run_id = ANY(?) GROUP BY run_id"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Members:
    """The nodes of a run, and their expected number, as the first node reported it."""

    nodes: frozenset[int] = frozenset()
    places: int = 1


class RunOwners:
    """A cache of the nodes of runs. It belongs to the thread that writes the store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        # By run, the last used last.
        self._members: dict[str, _Members] = {}

    def check(self, decoded: Decoded, node_id: int) -> None:
        """Reject rows of other nodes' runs, and note the runs that these rows create or join.

        Raises:
            RejectedRecordsError: there are such rows.
            duckdb.Error: the store cannot be read.
        """
        named = {
            run_id
            for pieces in decoded.tables.values()
            for piece in pieces
            if "run_id" in piece.texts
            for run_id in piece.texts["run_id"].unique().to_pylist()
            if run_id is not None
        }
        if not named:
            return
        if unknown := list(named - self._members.keys()):
            self._keep(self._load(unknown))
        requests = decoded.tables.get("run_requests")
        asked = dict(_places(join(requests))) if requests else {}
        for run_id in sorted(named):
            self._admit(run_id, asked, node_id, decoded.invitations)

    def _admit(self, run_id: str, asked: Mapping[str, int], node_id: int, invitations: Mapping[str, str]) -> None:
        members = self._members.get(run_id, _Members(places=asked.get(run_id, 1)))
        if node_id not in members.nodes and members.places > 1:
            # Another collector may have admitted it, and a run of several nodes needs an invitation. Members that are
            # about to be committed are not in the store.
            stored = self._load([run_id]).get(run_id)
            members = replace(stored, nodes=stored.nodes | members.nodes) if stored else members
        if members.nodes and node_id not in members.nodes:
            if run_id not in asked or not _has_invitation(run_id, invitations):
                raise RejectedRecordsError(f"run {run_id[:100]} is another node's")
            if len(members.nodes) >= members.places:
                raise RejectedRecordsError(f"run {run_id[:100]} has its {members.places} nodes already")
        elif run_id in asked and members.places > 1 and not _has_invitation(run_id, invitations):
            raise RejectedRecordsError(f"run {run_id[:100]} is of several nodes, and this one was not invited")
        if run_id in asked:
            members = replace(members, nodes=members.nodes | {node_id})
        if members.nodes:
            self._keep({run_id: members})

    def _load(self, run_ids: list[str]) -> dict[str, _Members]:
        rows = self._connection.execute(_MEMBERS, [run_ids]).fetchall()
        return {run_id: _Members(nodes=frozenset(nodes), places=places) for run_id, nodes, places in rows}

    def _keep(self, members: dict[str, _Members]) -> None:
        for run_id in members:
            self._members.pop(run_id, None)
        self._members |= members
        while len(self._members) > _KEPT_RUNS:
            del self._members[next(iter(self._members))]


def _has_invitation(run_id: str, invitations: Mapping[str, str]) -> bool:
    return run_id in invitations and is_invited(run_id, invitations[run_id])


def _places(requests: pa.Table) -> Iterable[tuple[str, int]]:
    """Yield each requested run, and its expected number of nodes."""
    names = requests.column_names
    if "run_id" not in names:
        return
    run_ids = requests["run_id"].to_pylist()
    nodes = requests["nodes"].to_pylist() if "nodes" in names else [None] * len(run_ids)
    yield from ((run_id, places or 1) for run_id, places in zip(run_ids, nodes, strict=True) if run_id is not None)
