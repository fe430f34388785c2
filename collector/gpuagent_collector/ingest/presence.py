"""Presence of agents, and the end of runs whose agent has gone."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta

import duckdb
import pyarrow as pa

from gpuagent_common.statuses import OPEN_STATUSES, RunStatus

_OPEN_PARTS = """
WITH open AS (
    SELECT run_id, session_id, node_id FROM run_parts WHERE status = ANY($open) AND node_id IS NOT NULL
    UNION ALL
    SELECT run_id, session_id, node_id FROM runs WHERE status IS NULL
), heard AS (
    SELECT session_id, max(committed_at) AS at FROM marks GROUP BY session_id
)
SELECT
    run_id, open.session_id, open.node_id, heard.at,
    EXISTS (
        FROM sessions AS own JOIN sessions AS later USING (node_id)
        WHERE own.session_id = open.session_id AND later.started_at > own.started_at
    )
FROM open LEFT JOIN heard USING (session_id)
"""

# Runs of several nodes that have ended on all nodes that reported them, and lack others.
_INCOMPLETE_RUNS = """
SELECT run_id, arg_max(part.session_id, part.ended_at), max(part.ended_at), count(*), any_value(nodes)
FROM runs JOIN run_parts AS part USING (run_id)
WHERE runs.status = $running AND nodes > 1
GROUP BY run_id HAVING count(*) = count(part.ended_at)
"""

_INSERT_STATES = """
INSERT INTO run_states BY NAME SELECT session_id, node_id, ? AS time, run_id, ? AS status, reason FROM lost_runs
"""

# Sessions that have left and are remembered: a fleet's of some minutes. Of others, only the store tells.
_KEPT_SESSIONS = 100_000

# Session, node, run and reason.
_LostRun = tuple[int | None, int | None, str, str]


class Presence:
    """Sessions with an open stream, as far as this process knows.

    The server writes it and the writer's thread reads it; every step is one operation on a set or dict.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._since = now()
        self._open: set[int] = set()
        # When the last stream of each ended, the latest last.
        self._left: OrderedDict[int, datetime] = OrderedDict()

    def arrived(self, session_ids: Iterable[int]) -> None:
        """Record that a stream of these sessions has opened."""
        for session_id in session_ids:
            self._open.add(session_id)
            self._left.pop(session_id, None)

    def left(self, session_ids: Iterable[int]) -> None:
        """Record that the last stream of these sessions has ended."""
        for session_id in session_ids:
            self._left[session_id] = self._now()
            self._left.move_to_end(session_id)
            self._open.discard(session_id)
        while len(self._left) > _KEPT_SESSIONS:
            self._left.popitem(last=False)

    def begin_again(self) -> None:
        """Count silence from now on, because nothing could be stored while the store failed."""
        self._since = self._now()

    def connected(self, session_id: int) -> bool:
        """Return whether a stream of this session is open."""
        return session_id in self._open

    def last_seen(self, session_id: int) -> datetime:
        """Return when the session's stream ended, but no time before the store could be written."""
        return max(self._left.get(session_id, self._since), self._since)


def declare_lost(
    connection: duckdb.DuckDBPyConnection, presence: Presence, *, now: datetime, after: timedelta
) -> Sequence[str]:
    """End and return the runs whose agent has been silent for `after`, or that have lacked nodes for as long.

    If the agent comes back, its own report of the run's end outranks this one (view `runs`). Raises duckdb.Error: the
    store failed; nothing is written.
    """
    lost = [*_find_silent(connection, presence, now - after), *_find_incomplete(connection, presence, now - after)]
    if lost:
        session_ids, node_ids, run_ids, reasons = zip(*lost, strict=True)
        columns = {
            "session_id": pa.array(session_ids, pa.int64()),
            "node_id": pa.array(node_ids, pa.int64()),
            "run_id": pa.array(run_ids, pa.string()),
            "reason": pa.array(reasons, pa.string()),
        }
        connection.register("lost_runs", pa.table(columns))
        try:
            connection.execute(_INSERT_STATES, [now, RunStatus.LOST.value])
        finally:
            connection.unregister("lost_runs")
    return list(dict.fromkeys(run_id for _, _, run_id, _ in lost))


def _find_silent(connection: duckdb.DuckDBPyConnection, presence: Presence, horizon: datetime) -> Iterator[_LostRun]:
    """Yield the parts of runs whose agent is silent."""
    rows = connection.execute(_OPEN_PARTS, {"open": OPEN_STATUSES}).fetchall()
    for run_id, session_id, node_id, committed_at, superseded in rows:
        seen = presence.last_seen(session_id)
        last_heard = seen if committed_at is None else max(seen, committed_at)
        # A session is gone once a later agent process has started on its node, though its spool may still be sent.
        is_followed = presence.connected(session_id) and not superseded
        if not is_followed and last_heard < horizon:
            yield session_id, node_id, run_id, f"its agent has been silent since {last_heard:%Y-%m-%d %H:%M:%S} UTC"


def _find_incomplete(
    connection: duckdb.DuckDBPyConnection, presence: Presence, horizon: datetime
) -> Iterator[_LostRun]:
    """Yield the runs that lack nodes, without a node because the missing one is unknown."""
    rows = connection.execute(_INCOMPLETE_RUNS, {"running": RunStatus.RUNNING.value}).fetchall()
    for run_id, session_id, ended_at, parts, nodes in rows:
        if max(ended_at, presence.last_seen(session_id)) < horizon:
            reason = f"only {parts} of its {nodes} nodes reported it; the others were given something else, or nothing"
            yield None, None, run_id, reason
