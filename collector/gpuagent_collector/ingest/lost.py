"""Runs whose agent has gone end as lost, never as running for ever."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import duckdb

from gpuagent_collector.ingest.presence import Presence

_OPEN_RUNS = """
WITH speaker AS (
    SELECT run_id, arg_max(session_id, time) AS session_id, arg_max(node_id, time) AS node_id
    FROM run_states WHERE session_id IS NOT NULL GROUP BY run_id
), owner AS (
    SELECT
        run_id,
        coalesce(speaker.session_id, runs.session_id) AS session_id,
        coalesce(speaker.node_id, runs.node_id) AS node_id
    FROM runs LEFT JOIN speaker USING (run_id)
    WHERE coalesce(status, 'queued') IN ('queued', 'running')
), heard AS (
    SELECT session_id, max(committed_at) AS at FROM marks GROUP BY session_id
)
SELECT
    run_id, owner.session_id, owner.node_id, heard.at,
    EXISTS (
        FROM sessions AS own JOIN sessions AS later USING (node_id)
        WHERE own.session_id = owner.session_id AND later.started_at > own.started_at
    )
FROM owner LEFT JOIN heard USING (session_id)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenRun:
    run_id: str
    session_id: int
    node_id: int
    committed_at: datetime | None
    """When the session that last spoke of the run was last heard."""
    superseded: bool
    """A later agent process has started on the node: this session's is gone, though its spool may still be sent."""

    def last_heard(self, presence: Presence) -> datetime:
        seen = presence.last_seen(self.session_id)
        return seen if self.committed_at is None else max(seen, self.committed_at)

    def is_lost(self, presence: Presence, horizon: datetime) -> bool:
        followed = presence.connected(self.session_id) and not self.superseded
        return not followed and self.last_heard(presence) < horizon


def declare_lost(
    connection: duckdb.DuckDBPyConnection, presence: Presence, *, now: datetime, after: timedelta
) -> Sequence[str]:
    """End the runs whose agent has not been heard of for `after`, and return them.

    Should the agent come back, what it says of the run's end outranks this (view `runs`).

    Raises:
        duckdb.Error: the store failed; nothing is written.
    """
    rows = connection.execute(_OPEN_RUNS).fetchall()
    names = ("run_id", "session_id", "node_id", "committed_at", "superseded")
    runs = [_OpenRun(**dict(zip(names, row, strict=True))) for row in rows]
    lost = [run for run in runs if run.is_lost(presence, now - after)]
    if lost:
        connection.executemany(
            "INSERT INTO run_states (node_id, time, run_id, status, reason) VALUES (?, ?, ?, 'lost', ?)",
            [(run.node_id, now, run.run_id, _reason(run.last_heard(presence))) for run in lost],
        )
    return [run.run_id for run in lost]


def _reason(heard: datetime) -> str:
    return f"its agent has not been heard of since {heard:%Y-%m-%d %H:%M:%S} UTC"
