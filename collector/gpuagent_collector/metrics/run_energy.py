"""The energy of runs, from samples within their windows."""

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


def insert_energy(connection: duckdb.DuckDBPyConnection, wanted: Mapping[str, object]) -> None:
    """Append the energies of runs that have ended to run_energy.

    `wanted` has computed_at (naive, UTC), and life_from and life_to, which enclose the runs of the temporary tables.
    """
    execute(connection, _INSERT, wanted)


# Spans of time of one GPU. `usual_seconds` decides whether a span is long enough: for steps all or none are.
_SPANS = """
phase_spans AS (  -- the measured window counts as measured, restarts included, as for all other figures
    SELECT run_nodes.run_id, run_nodes.node_id, NULL AS phase, started_at AS from_time, ended_at AS to_time
    FROM run_nodes JOIN lives ON lives.run_id = run_nodes.run_id
    UNION ALL
    SELECT run_id, node_id, 'measure', from_time, to_time FROM windows WHERE measured
    UNION ALL
    SELECT run_id, node_id, name, min(time),
           max(least(until, CASE WHEN measured AND time < from_time THEN from_time END))
    FROM (SELECT * REPLACE (coalesce(until, ended_at) AS until) FROM phases) JOIN windows USING (run_id, node_id)
    WHERE name NOT IN ('measure', 'counters', 'end') AND NOT (measured AND time >= from_time AND time < to_time)
    GROUP BY run_id, node_id, name
),
timed_steps AS (  -- a GPU's own time of a step, where known, until the host completed it
    SELECT steps.run_id, steps.node_id, steps.rank, step, steps.time,
           CASE WHEN coalesce(gpu_seconds, wall_seconds) BETWEEN 0 AND 1e9 THEN coalesce(gpu_seconds, wall_seconds) END
           AS seconds
    FROM steps JOIN lives USING (run_id)
    WHERE phase = 'measure' AND steps.time BETWEEN $life_from AND $life_to
),
usual_steps AS (
    SELECT run_id, node_id, rank, median(seconds) AS usual_seconds FROM timed_steps GROUP BY run_id, node_id, rank
),
rank_gpus AS (
    SELECT DISTINCT run_id, run_devices.node_id, rank, device_id
    FROM run_devices JOIN lives USING (run_id) WHERE device_id IS NOT NULL
),
spans AS (
    SELECT run_id, node_id, device_id, phase, NULL AS step, from_time, to_time,
           epoch(to_time - from_time) AS usual_seconds
    FROM phase_spans JOIN run_gpus USING (run_id, node_id)
    UNION ALL
    SELECT run_id, node_id, device_id, 'measure', step, time - to_microseconds(CAST(1e6 * seconds AS BIGINT)), time,
           usual_seconds
    FROM timed_steps JOIN usual_steps USING (run_id, node_id, rank) JOIN rank_gpus USING (run_id, node_id, rank)
)"""

# The consumption of each GPU at each reading since the first, and the part of the time since then that is known.
_CURVES = """
readings AS (
    SELECT run_gpus.run_id, samples.*
    FROM (
        SELECT session_id, node_id, device_id, time, 'power_samples' AS method, power_watts,
               CAST(NULL AS DOUBLE) AS counted_joules
        FROM power_samples
        UNION ALL
        SELECT session_id, node_id, device_id, time, 'power_' || coalesce(power_kind, 'polled'), power_watts, NULL
        FROM gpu_samples
        UNION ALL
        SELECT session_id, node_id, device_id, time, 'counter', NULL, energy_joules FROM gpu_samples
    ) AS samples
    JOIN run_gpus ON samples.node_id = run_gpus.node_id AND samples.device_id = run_gpus.device_id
    JOIN run_sessions ON run_sessions.run_id = run_gpus.run_id AND run_sessions.session_id = samples.session_id
    JOIN lives ON lives.run_id = run_gpus.run_id
    WHERE coalesce(power_watts, counted_joules) IS NOT NULL AND samples.time BETWEEN $life_from AND $life_to
        AND samples.time BETWEEN started_at - INTERVAL 15 SECONDS AND ended_at + INTERVAL 15 SECONDS
),
stretches AS (  -- from one reading to the next; the power between them, where they are near enough
    SELECT *, CASE WHEN seconds <= CASE method WHEN 'counter' THEN 15 ELSE 5 END
                        AND (next_joules >= counted_joules) IS NOT FALSE THEN seconds END AS known_seconds,
           coalesce(power_watts, (next_joules - counted_joules) / seconds) AS watts,
           coalesce((next_watts - power_watts) / seconds, 0) AS slope
    FROM (
        SELECT *, epoch(next_time - time) AS seconds
        FROM (
            SELECT *, lead(time) OVER later AS next_time, lead(power_watts) OVER later AS next_watts,
                   lead(counted_joules) OVER later AS next_joules
            FROM readings
            WINDOW later AS (PARTITION BY run_id, node_id, device_id, method ORDER BY time)
        )
    )
    WHERE seconds > 0 OR seconds IS NULL  -- two agents of one node read the same buffer
),
paces AS (
    SELECT run_id, node_id, device_id, method, median(known_seconds) AS usual_distance
    FROM stretches GROUP BY run_id, node_id, device_id, method
),
curves AS (
    SELECT run_id, node_id, device_id, method, time, known_seconds, watts, slope,
           coalesce(sum(known_seconds) OVER before, 0) AS seconds_before,
           coalesce(sum(known_seconds * (watts + slope * known_seconds / 2)) OVER before, 0) AS joules_before
    FROM stretches
    WINDOW before AS (
        PARTITION BY run_id, node_id, device_id, method ORDER BY time
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
)"""

_ENERGIES = """
ends AS (
    SELECT spans.*, method, unnest([from_time, to_time]) AS moment, unnest([-1, 1]) AS sign
    FROM spans JOIN paces USING (run_id, node_id, device_id) WHERE usual_seconds >= 10 * usual_distance
),
states AS (
    SELECT ends.*, coalesce(seconds_before + passed_seconds, seconds_before, 0) AS known_seconds,
           coalesce(joules_before + passed_seconds * (watts + slope * passed_seconds / 2), joules_before, 0) AS joules
    FROM (
        SELECT ends.*, seconds_before, joules_before, watts, slope,
               CASE WHEN known_seconds IS NOT NULL THEN epoch(moment - time) END AS passed_seconds
        FROM ends ASOF LEFT JOIN curves
            ON ends.run_id = curves.run_id AND ends.node_id = curves.node_id AND ends.device_id = curves.device_id
            AND ends.method = curves.method AND ends.moment >= curves.time
    ) AS ends
)
SELECT run_id, CAST($computed_at AS TIMESTAMP), node_id, device_id, phase, step, epoch(to_time - from_time) AS seconds,
       sum(sign * joules), method
FROM states
GROUP BY run_id, node_id, device_id, phase, step, from_time, to_time, method
HAVING sum(sign * known_seconds) >= 0.98 * epoch(to_time - from_time)
QUALIFY row_number() OVER (
    PARTITION BY run_id, node_id, device_id, phase, step, from_time
    ORDER BY CASE method WHEN 'power_samples' THEN 0 WHEN 'counter' THEN 2 ELSE 1 END
) = 1"""

_COLUMNS = "run_id, computed_at, node_id, device_id, phase, step, seconds, energy_joules, method"

_INSERT = f"INSERT INTO run_energy ({_COLUMNS})\nWITH " + ",".join((_SPANS, _CURVES, _ENERGIES))
