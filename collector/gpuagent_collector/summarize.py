"""A run's figures, computed once when it ended and stored, so that comparing thousands of runs never reads samples."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import duckdb

from gpuagent_collector.metric_sources import SOURCES, Source
from gpuagent_collector.metrics import METRICS, Metric

_LIVES = """
lives AS MATERIALIZED (
    SELECT run_id, node_id, started_at, ended_at FROM runs
    WHERE run_id IN (SELECT unnest($run_ids)) AND started_at IS NOT NULL AND ended_at IS NOT NULL
)"""
"""When each run ran."""

_WINDOWS = """
phases AS (
    SELECT run_id, node_id, rank, name, time, ended_at,
           lead(time) OVER (PARTITION BY run_id, rank ORDER BY time) AS until
    FROM (
        SELECT run_events.run_id, run_events.node_id, rank, name, time, ended_at
        FROM run_events JOIN lives USING (run_id)
        WHERE event = 'phase' AND run_events.time BETWEEN $life_from AND $life_to
    )
),
measured AS (
    SELECT run_id, node_id, min(time) AS from_time,
           CASE WHEN max(until) > max(time) THEN max(until) ELSE max(ended_at) END AS to_time
    FROM phases WHERE name = 'measure' GROUP BY run_id, node_id
),
run_nodes AS (
    SELECT run_id, node_id FROM lives
    UNION
    SELECT run_id, run_devices.node_id FROM run_devices JOIN lives USING (run_id)
),
windows AS MATERIALIZED (
    SELECT run_nodes.run_id, run_nodes.node_id, measured.run_id IS NOT NULL AS measured,
           coalesce(from_time, started_at) AS from_time, coalesce(to_time, ended_at) AS to_time
    FROM run_nodes JOIN lives ON lives.run_id = run_nodes.run_id
    LEFT JOIN measured ON measured.run_id = run_nodes.run_id AND measured.node_id = run_nodes.node_id
),
run_gpus AS MATERIALIZED (
    SELECT DISTINCT run_id, run_devices.node_id, device_id
    FROM run_devices JOIN lives USING (run_id)
    WHERE device_id IS NOT NULL
)"""
"""The time in which each run counts on each of its nodes: from the first measure phase of its ranks there to the end of
the last, or the whole run where no phase was reported; then `measured` is false. A rank that restarts measures again,
and one that is killed does not say when its phase ended: then the others do, or the end of the run."""


def summarize_runs(connection: duckdb.DuckDBPyConnection, run_ids: Sequence[str], computed_at: datetime) -> None:
    """Append the figures of those of the runs that have ended to run_metrics.

    GPUs on which NVML saw a run's processes, and which it did not report itself, are added to run_devices first; both
    belong into one transaction. Computing a run again is harmless: the view `metrics` shows only the rows of the last
    `computed_at` (naive, UTC). A run that reported no measure phase has no `measure_seconds`, and its figures are of
    the whole run.
    """
    wanted: dict[str, object] = {"run_ids": list(run_ids)}
    life = connection.execute(_LIFE, wanted).fetchone()
    if life is None or life[0] is None:
        return
    wanted |= {"life_from": life[0] - _SLACK, "life_to": life[1] + _SLACK}
    connection.execute(_FIND_DEVICES, wanted)
    bounds = connection.execute(_BOUNDS, wanted).fetchone() or (None, None)
    connection.execute(_INSERT, wanted | {"computed_at": computed_at, "from_time": bounds[0], "to_time": bounds[1]})


def _figures(source: Source) -> str:
    """Return the SELECT of a source's metrics: run_id and, in `figure`, name, unit, value and count of readings."""
    metrics = [metric for metric in METRICS if metric.source is source]
    return _FIGURES.format(
        relation=source.relation,
        in_part=",\n        ".join(f"{_in_part(metric)} AS {metric.name}, {_count(metric)}" for metric in metrics),
        over_parts=",\n    ".join(map(_over_parts, metrics)),
    )


def _in_part(metric: Metric) -> str:
    return metric.in_part.format(metric.reading)


def _count(metric: Metric) -> str:
    return f"count({metric.reading}) AS {metric.name}_readings"


def _over_parts(metric: Metric) -> str:
    value = f"CAST({metric.over_parts}({metric.name}) AS DOUBLE)"
    readings = f"CAST(sum({metric.name}_readings) AS BIGINT)"
    return f"{{'metric': '{metric.name}', 'unit': '{metric.unit}', 'value': {value}, 'samples': {readings}}}"


_SLACK = timedelta(seconds=60)
"""How far the clocks of a run's nodes may lie apart. Only a bound on what is read: rows are found by their run."""

_ENCLOSING_LIVES = "WITH {lives} SELECT min(started_at), max(ended_at) FROM lives"

_LIFE = _ENCLOSING_LIVES.format(lives=_LIVES)

_ENCLOSING_WINDOWS = "WITH {lives}, {windows} SELECT min(from_time), max(to_time) FROM windows"

_BOUNDS = _ENCLOSING_WINDOWS.format(lives=_LIVES, windows=_WINDOWS)

_INSERT_DEVICES = """
INSERT INTO run_devices (session_id, node_id, time, run_id, device_id, pid, found_by)
WITH {lives}
SELECT arg_min(seen.session_id, seen.time), seen.node_id, min(seen.time), seen.run_id, seen.device_id,
       arg_min(seen.pid, seen.time), 'processes'
FROM gpu_process_samples AS seen JOIN lives USING (run_id)
WHERE seen.time BETWEEN $life_from AND $life_to AND seen.time BETWEEN started_at AND ended_at
    AND NOT EXISTS (
        FROM run_devices AS known
        WHERE known.run_id = seen.run_id AND known.node_id = seen.node_id AND known.device_id = seen.device_id
    )
GROUP BY seen.run_id, seen.node_id, seen.device_id"""

_FIND_DEVICES = _INSERT_DEVICES.format(lives=_LIVES)

_FIGURES = """
SELECT run_id, unnest([
    {over_parts}
]) AS figure
FROM (
    SELECT run_id, part,
        {in_part}
    FROM ({relation}
    )
    GROUP BY run_id, part
)
GROUP BY run_id"""

_INSERT_FIGURES = """
INSERT INTO run_metrics (run_id, computed_at, metric, value, unit, samples)
WITH {lives}, {windows}
SELECT run_id, CAST($computed_at AS TIMESTAMP), figure.metric, figure.value, figure.unit, figure.samples
FROM ({figures}
)
WHERE figure.value IS NOT NULL AND isfinite(figure.value)
"""

_INSERT = _INSERT_FIGURES.format(lives=_LIVES, windows=_WINDOWS, figures=" UNION ALL ".join(map(_figures, SOURCES)))
