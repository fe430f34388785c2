"""Whose a run is: the node's that said first what it is, and theirs who were invited. No other writes a row of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import duckdb
import pyarrow as pa

from gpuagent_collector.errors import RejectedRecordsError
from gpuagent_collector.ingest.decode import Decoded
from gpuagent_common.invitation import is_invited

# So many runs' nodes are kept in memory; of others the store is asked again.
_KEPT_RUNS = 100_000

_MEMBERS = """
SELECT run_id, list(DISTINCT node_id), coalesce(min_by(nodes, time), 1)
FROM run_requests WHERE run_id = ANY(?) GROUP BY run_id"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Members:
    """The nodes of a run, and how many it is to have, as the first of them said."""

    nodes: frozenset[int] = frozenset()
    places: int = 1


class RunOwners:
    """Knows the nodes of runs. It belongs to the thread that writes the store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        # By run, the last used last.
        self._members: dict[str, _Members] = {}

    def check(self, decoded: Decoded, node_id: int) -> None:
        """Refuse rows of other nodes' runs, and note the runs that these rows bring or join.

        Raises:
            RejectedRecordsError: there are such rows.
            duckdb.Error: the store cannot be read.
        """
        named = {run_id for tables in decoded.tables.values() for table in tables for run_id in _run_ids(table)}
        if not named:
            return
        self._look_up(named - self._members.keys())
        asked = dict(run for table in decoded.tables.get("run_requests", ()) for run in _places(table))
        for run_id in sorted(named):
            self._admit(run_id, asked, node_id, decoded.invitations)

    def _admit(self, run_id: str, asked: Mapping[str, int], node_id: int, invitations: Mapping[str, str]) -> None:
        members = self._members.get(run_id, _Members(places=asked.get(run_id, 1)))
        if node_id not in members.nodes and members.places > 1:
            # Another collector may have let it in, and whoever says what a run of several nodes is must be invited.
            members = self._look_again(run_id, members)
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

    def _look_again(self, run_id: str, members: _Members) -> _Members:
        """Return them with those that the store has; what is about to be committed is not in it."""
        stored = self._stored([run_id]).get(run_id)
        return replace(stored, nodes=stored.nodes | members.nodes) if stored else members

    def _look_up(self, run_ids: Iterable[str]) -> None:
        unknown = list(run_ids)
        if unknown:
            self._keep(self._stored(unknown))

    def _stored(self, run_ids: list[str]) -> dict[str, _Members]:
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


def _run_ids(table: pa.Table) -> Iterable[str]:
    if "run_id" not in table.column_names:
        return ()
    return [run_id for run_id in table["run_id"].unique().to_pylist() if run_id is not None]


def _places(requests: pa.Table) -> Iterable[tuple[str, int]]:
    """Yield each run that is asked for, and how many nodes it is to have."""
    names = requests.column_names
    if "run_id" not in names:
        return
    run_ids = requests["run_id"].to_pylist()
    nodes = requests["nodes"].to_pylist() if "nodes" in names else [None] * len(run_ids)
    yield from ((run_id, places or 1) for run_id, places in zip(run_ids, nodes, strict=True) if run_id is not None)
