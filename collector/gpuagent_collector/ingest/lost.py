"""Runs whose agent has gone end as lost, never as running for ever."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import duckdb

from gpuagent_collector.ingest.presence import Presence

_OPEN_PARTS = """
WITH open AS (
    SELECT run_id, session_id, node_id FROM run_parts WHERE status IN ('queued', 'running') AND node_id IS NOT NULL
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

# Runs of several nodes that have ended on all nodes that said anything, and lack others.
_INCOMPLETE_RUNS = """
SELECT run_id, arg_max(part.session_id, part.ended_at), max(part.ended_at), count(*), any_value(nodes)
FROM runs JOIN run_parts AS part USING (run_id)
WHERE runs.status = 'running' AND nodes > 1
GROUP BY run_id HAVING count(*) = count(part.ended_at)
"""

_SAY_LOST = "INSERT INTO run_states (node_id, time, run_id, status, reason) VALUES (?, ?, ?, 'lost', ?)"


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenPart:
    """A run on one of its nodes, where it has not ended."""

    run_id: str
    session_id: int
    node_id: int
    # When the session that last spoke of the run was last heard.
    committed_at: datetime | None
    # A later agent process has started on the node: this session's is gone, though its spool may still be sent.
    superseded: bool

    def last_heard(self, presence: Presence) -> datetime:
        seen = presence.last_seen(self.session_id)
        return seen if self.committed_at is None else max(seen, self.committed_at)

    def is_lost(self, presence: Presence, horizon: datetime) -> bool:
        followed = presence.connected(self.session_id) and not self.superseded
        return not followed and self.last_heard(presence) < horizon


def declare_lost(
    connection: duckdb.DuckDBPyConnection, presence: Presence, *, now: datetime, after: timedelta
) -> Sequence[str]:
    """End the runs whose agent has not been heard of for `after`, or lack nodes for as long, and return them.

    Should the agent come back, what it says of the run's end outranks this (view `runs`).

    Raises:
        duckdb.Error: the store failed; nothing is written.
    """
    horizon = now - after
    rows = [*_silent(connection, presence, now, horizon), *_incomplete(connection, presence, now, horizon)]
    if rows:
        connection.executemany(_SAY_LOST, rows)
    return list(dict.fromkeys(run_id for _, _, run_id, _ in rows))


# Node, time, run and reason.
_Row = tuple[int | None, datetime, str, str]


def _silent(
    connection: duckdb.DuckDBPyConnection, presence: Presence, now: datetime, horizon: datetime
) -> Iterator[_Row]:
    """Yield what is to be said of the runs' parts whose agent is silent."""
    names = ("run_id", "session_id", "node_id", "committed_at", "superseded")
    for row in connection.execute(_OPEN_PARTS).fetchall():
        part = _OpenPart(**dict(zip(names, row, strict=True)))
        if part.is_lost(presence, horizon):
            yield part.node_id, now, part.run_id, _reason(part.last_heard(presence))


def _incomplete(
    connection: duckdb.DuckDBPyConnection, presence: Presence, now: datetime, horizon: datetime
) -> Iterator[_Row]:
    """Yield what is to be said of the runs that lack nodes, each in the name of those that are missing."""
    for run_id, session_id, ended_at, parts, nodes in connection.execute(_INCOMPLETE_RUNS).fetchall():
        if max(ended_at, presence.last_seen(session_id)) < horizon:
            reason = f"only {parts} of its {nodes} nodes told of it: others were asked for something else, or nothing"
            yield None, now, run_id, reason


def _reason(heard: datetime) -> str:
    return f"its agent has not been heard of since {heard:%Y-%m-%d %H:%M:%S} UTC"
