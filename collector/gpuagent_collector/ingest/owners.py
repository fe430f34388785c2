"""Owners of runs: the first node that described a run, and invited nodes. No other node writes a row of it."""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import duckdb
import pyarrow as pa

from gpuagent_collector.errors import RejectedRecordsError
from gpuagent_collector.ingest.decode import Decoded, join
from gpuagent_common.keys import is_invited
from gpuagent_common.limits import MAX_OPEN_RUNS
from gpuagent_common.statuses import OPEN_STATUSES

# Runs whose nodes are kept in memory; others are looked up in the store again.
_KEPT_RUNS = 100_000

_MEMBERS = """
SELECT run_id, list(DISTINCT node_id), coalesce(min_by(nodes, time), 1)
FROM run_requests WHERE run_id IN (SELECT run_id FROM named) GROUP BY run_id"""

_OPEN = """
SELECT node_id, count(*) FROM (
    SELECT node_id, run_id FROM run_parts WHERE status = ANY($open)
    UNION
    SELECT node_id, run_id FROM run_requests ANTI JOIN run_states USING (run_id, node_id)
) WHERE node_id = ANY($nodes) GROUP BY node_id"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Members:
    """The nodes of a run, and their expected number, as the first node reported it."""

    nodes: frozenset[int] = frozenset()
    places: int = 1


class RunOwners:
    """A cache of the nodes of runs, and a count of each node's. It belongs to the thread that writes the store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        # By run, the last used last.
        self._members: OrderedDict[str, _Members] = OrderedDict()
        # Node → its open runs at the last count, and those that it has opened since.
        self._open: defaultdict[int, int] = defaultdict(int)

    def load(self, group: Sequence[Decoded]) -> None:
        """Read the nodes of the runs that these messages name, in one statement for all.

        Raises duckdb.Error: the store cannot be read.
        """
        while len(self._members) > _KEPT_RUNS:
            self._members.popitem(last=False)
        self._count_open(group)
        wanted: set[str] = set()
        for decoded in group:
            for run_id in decoded.run_ids:
                members = self._members.get(run_id)
                # The store may know more: another collector can have admitted a node of several.
                if members is None or (members.places > 1 and decoded.node_id not in members.nodes):
                    wanted.add(run_id)
        if not wanted:
            return
        self._connection.register("named", pa.table({"run_id": pa.array(sorted(wanted), pa.string())}))
        try:
            rows = self._connection.execute(_MEMBERS).fetchall()
        finally:
            self._connection.unregister("named")
        for run_id, nodes, places in rows:
            # Members that are about to be committed are not in the store.
            cached = self._members.get(run_id, _Members())
            self._keep(run_id, _Members(nodes=frozenset(nodes) | cached.nodes, places=places))

    def _count_open(self, group: Sequence[Decoded]) -> None:
        """Count the open runs of nodes anew that would be over the limit otherwise: many may have ended."""
        named: Counter[int] = Counter()
        for decoded in group:
            named[decoded.node_id] += len(decoded.run_ids)
        near = [node_id for node_id, count in named.items() if self._open[node_id] + count > MAX_OPEN_RUNS]
        if near:
            rows = self._connection.execute(_OPEN, {"open": OPEN_STATUSES, "nodes": near}).fetchall()
            self._open |= dict.fromkeys(near, 0) | dict(rows)

    def check(self, decoded: Decoded) -> None:
        """Reject rows of other nodes' runs, and note the runs that these rows create or join; see `load`.

        Raises RejectedRecordsError: there are such rows, or the node has too many open runs.
        """
        if not decoded.run_ids:
            return
        requests = decoded.tables.get("run_requests")
        asked = dict(_places(join(requests))) if requests else {}
        self._check_open(decoded.node_id, len(asked))  # before the work of admitting them
        admitted = {run_id: self._admit(run_id, asked, decoded) for run_id in decoded.run_ids}
        # A run that nobody asked for is open too, as soon as it has a state.
        opened = sum(1 for run_id, members in admitted.items() if run_id in asked or not members.nodes)
        self._check_open(decoded.node_id, opened)
        self._open[decoded.node_id] += opened
        for run_id, members in admitted.items():
            if members.nodes:
                self._keep(run_id, members)

    def _check_open(self, node_id: int, opened: int) -> None:
        if opened and self._open[node_id] + opened > MAX_OPEN_RUNS:
            raise RejectedRecordsError(f"more than {MAX_OPEN_RUNS:,} runs of this node have not ended")

    def _admit(self, run_id: str, asked: Mapping[str, int], decoded: Decoded) -> _Members:
        node_id, invitation = decoded.node_id, decoded.invitations.get(run_id)
        invited = invitation is not None and is_invited(run_id, invitation)
        members = self._members.get(run_id, _Members(places=asked.get(run_id, 1)))
        if members.nodes and node_id not in members.nodes:
            if run_id not in asked or not invited:
                raise RejectedRecordsError(f"run {run_id[:100]} is another node's")
            if len(members.nodes) >= members.places:
                raise RejectedRecordsError(f"run {run_id[:100]} has its {members.places} nodes already")
        elif run_id in asked and members.places > 1 and not invited:
            raise RejectedRecordsError(f"run {run_id[:100]} is of several nodes, and this one was not invited")
        if run_id in asked:
            members = replace(members, nodes=members.nodes | {node_id})
        return members

    def _keep(self, run_id: str, members: _Members) -> None:
        self._members[run_id] = members
        self._members.move_to_end(run_id)


def _places(requests: pa.Table) -> Iterator[tuple[str, int]]:
    names = requests.column_names
    if "run_id" not in names:
        return
    run_ids = requests["run_id"].to_pylist()
    nodes = requests["nodes"].to_pylist() if "nodes" in names else [None] * len(run_ids)
    yield from ((run_id, places or 1) for run_id, places in zip(run_ids, nodes, strict=True) if run_id is not None)
