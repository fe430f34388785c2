"""Temporary tables of the runs that are summarised: their lives, nodes, phases, windows and GPUs.

One statement with all of this and every figure takes DuckDB longer to plan than to execute, so each part is made once.
"""

import re
from collections.abc import Mapping

import duckdb

from gpuagent_collector.run_sessions import on_other_machine, takers


def execute(connection: duckdb.DuckDBPyConnection, sql: str, wanted: Mapping[str, object]) -> duckdb.DuckDBPyConnection:
    """Execute a statement with those of the wanted parameters that it has."""
    return connection.execute(sql, {name: wanted[name] for name in set(_PARAMETER.findall(sql))})


_PARAMETER = re.compile(r"\$([a-z]\w*)")

# The time of each run.
LIVES = """
CREATE OR REPLACE TEMP TABLE lives AS
SELECT run_id, node_id, started_at, ended_at FROM runs
WHERE run_id IN (SELECT unnest($run_ids)) AND started_at IS NOT NULL AND ended_at IS NOT NULL"""

_PHASES = """
CREATE OR REPLACE TEMP TABLE phases AS
SELECT run_events.run_id, run_events.node_id, rank, name, time, ended_at,
       lead(time) OVER (PARTITION BY run_events.run_id, rank ORDER BY time) AS until
FROM run_events JOIN lives USING (run_id)
WHERE event = 'phase' AND run_events.time BETWEEN $life_from AND $life_to"""

_RUN_NODES = """
CREATE OR REPLACE TEMP TABLE run_nodes AS
SELECT run_id, run_requests.node_id FROM run_requests JOIN lives USING (run_id)
UNION
SELECT run_id, run_devices.node_id FROM run_devices JOIN lives USING (run_id)"""

# The agent processes that sampled the machines of each run while it lived.
_RUN_SESSIONS = f"""
CREATE OR REPLACE TEMP TABLE run_sessions AS
WITH {takers("SEMI JOIN lives USING (run_id)")}
SELECT run_id, session_id, node_id FROM takers
UNION
SELECT takers.run_id, beside.session_id, beside.node_id
FROM takers JOIN lives USING (run_id) JOIN sessions AS own USING (session_id)
JOIN sessions AS beside ON beside.node_id = own.node_id AND NOT {on_other_machine("own", "beside")}
    AND beside.started_at <= $life_to
LEFT JOIN session_ends AS left_at ON left_at.session_id = beside.session_id
WHERE beside.started_at <= lives.ended_at + INTERVAL 1 MINUTE
    AND (left_at.time >= lives.started_at - INTERVAL 1 MINUTE) IS NOT FALSE"""  # noqa: S608 - names of the schema

# The time in which each run counts on each of its nodes: from the first measure phase of its ranks there to the end
# of the last, or the whole run where no phase was reported; then `measured` is false. A rank that restarts measures
# again, and one that is killed does not report the end of its phase: then the others do, or the run ends it.
_WINDOWS = """
CREATE OR REPLACE TEMP TABLE windows AS
SELECT run_nodes.run_id, run_nodes.node_id, measured.run_id IS NOT NULL AS measured,
       coalesce(from_time, started_at) AS from_time, coalesce(to_time, ended_at) AS to_time
FROM run_nodes JOIN lives ON lives.run_id = run_nodes.run_id
LEFT JOIN (
    SELECT run_id, node_id, min(time) AS from_time,
           CASE WHEN max(until) > max(time) THEN max(until) ELSE max(ended_at) END AS to_time
    FROM phases WHERE name = 'measure' GROUP BY run_id, node_id
) AS measured ON measured.run_id = run_nodes.run_id AND measured.node_id = run_nodes.node_id"""

# The same time for each agent process that sampled the run's machine there.
_SESSION_WINDOWS = """
CREATE OR REPLACE TEMP TABLE session_windows AS
SELECT windows.*, session_id
FROM windows JOIN run_sessions USING (run_id, node_id)"""

_RUN_GPUS = """
CREATE OR REPLACE TEMP TABLE run_gpus AS
SELECT DISTINCT run_id, run_devices.node_id, device_id
FROM run_devices JOIN lives USING (run_id)
WHERE device_id IS NOT NULL"""

# In this order: the windows are made of the others.
WINDOWS = (_PHASES, _RUN_NODES, _RUN_SESSIONS, _WINDOWS, _SESSION_WINDOWS, _RUN_GPUS)

TABLES = ("lives", "phases", "run_nodes", "run_sessions", "windows", "session_windows", "run_gpus")
