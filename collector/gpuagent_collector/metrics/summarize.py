"""Summaries of runs, computed once at their end and stored, so that comparing thousands of runs reads no samples."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import duckdb

from gpuagent_collector.choices import Stat
from gpuagent_collector.metrics import METRICS, StoredMetric
from gpuagent_collector.metrics.metric_sources import SOURCES, Source
from gpuagent_collector.metrics.run_energy import LIVES, TABLES, WINDOWS, execute, insert_energy


def summarize_runs(connection: duckdb.DuckDBPyConnection, run_ids: Sequence[str], computed_at: datetime) -> None:
    """Append the figures of the runs that have ended to run_energy and run_metrics, and of their parts.

    GPUs on which NVML saw a run's processes, and which it did not report itself, are added to run_devices first; both
    belong in one transaction. Computing a run again is harmless: the view `metrics` shows only the rows of the last
    `computed_at` (naive, UTC). A run that reported no measure phase has no `measure_seconds`, and its figures are of
    the whole run.
    """
    execute(connection, LIVES, {"run_ids": list(run_ids)})
    life = connection.execute("SELECT min(started_at), max(ended_at) FROM lives").fetchone()
    if life is not None and life[0] is not None:
        _summarize_lives(
            connection, {"computed_at": computed_at, "life_from": life[0] - _SLACK, "life_to": life[1] + _SLACK}
        )
    for table in (*TABLES, "part_figures"):
        connection.execute(f"DROP TABLE IF EXISTS temp.{table}")


def _summarize_lives(connection: duckdb.DuckDBPyConnection, wanted: dict[str, object]) -> None:
    if _present(connection, [_SEEN], wanted):
        execute(connection, _FIND_DEVICES, wanted)
    for statement in WINDOWS:
        execute(connection, statement, wanted)
    bounds = connection.execute("SELECT min(from_time), max(to_time) FROM windows").fetchone() or (None, None)
    wanted |= {"from_time": bounds[0], "to_time": bounds[1]}
    if _present(connection, ["run_gpus"], wanted):
        insert_energy(connection, wanted)
    connection.execute(_PART_FIGURES)
    present = _present(connection, list(dict.fromkeys(need for source in SOURCES for need in source.needs)), wanted)
    for source, statements in _INSERT_PART_FIGURES.items():
        if present.issuperset(source.needs):
            for statement in statements:
                execute(connection, statement, wanted)
    execute(connection, _INSERT, wanted | _OVER_PARTS)
    execute(connection, _INSERT_PARTS, wanted)


def _present(connection: duckdb.DuckDBPyConnection, relations: Sequence[str], wanted: Mapping[str, object]) -> set[str]:
    """Return those of the relations that have rows."""
    sql = " UNION ALL ".join(f"(SELECT {number} FROM {each} LIMIT 1)" for number, each in enumerate(relations))  # noqa: S608 - of ours
    return {relations[number] for (number,) in execute(connection, sql, wanted).fetchall()}


# The most by which clocks of a run's nodes may differ. Only a bound on what is read: rows are found by their run.
_SLACK = timedelta(seconds=60)

_SEEN = "gpu_process_samples WHERE time BETWEEN $life_from AND $life_to"

_FIND_DEVICES = """
INSERT INTO run_devices (session_id, node_id, time, run_id, device_id, pid, found_by)
SELECT arg_min(seen.session_id, seen.time), seen.node_id, min(seen.time), seen.run_id, seen.device_id,
       arg_min(seen.pid, seen.time), 'processes'
FROM gpu_process_samples AS seen JOIN lives USING (run_id)
WHERE seen.time BETWEEN $life_from AND $life_to AND seen.time BETWEEN started_at AND ended_at
    AND NOT EXISTS (
        FROM run_devices AS known
        WHERE known.run_id = seen.run_id AND known.node_id = seen.node_id AND known.device_id = seen.device_id
    )
GROUP BY seen.run_id, seen.node_id, seen.device_id"""

# A figure of each part of each run, and statistics of its readings over time.
_PART_FIGURES = """
CREATE OR REPLACE TEMP TABLE part_figures (
    run_id VARCHAR, part BIGINT, part_kind VARCHAR, metric VARCHAR, value DOUBLE, readings BIGINT,
    mean_value DOUBLE, median_value DOUBLE, p95_value DOUBLE, max_value DOUBLE
)"""

# Statistic over time → its column in a part, with {} for the metric's name.
_STATS = {Stat.MEAN: "{}_mean", Stat.MEDIAN: "{}_quantiles[1]", Stat.P95: "{}_quantiles[2]", Stat.MAX: "{}_max"}


def _insert_part_figures(source: Source) -> Iterator[str]:
    """Yield the statements that insert the figures of a source's parts."""
    kind = f"'{source.part_kind.value}'" if source.part_kind else "NULL"
    metrics = [metric for metric in METRICS if metric.source is source]
    if results := [metric for metric in metrics if metric.result]:
        yield _insert_results(source, kind, results)
    if others := [metric for metric in metrics if not metric.result]:
        figures = {
            "metric": [f"'{metric.name}'" for metric in others],
            "value": [f"CAST({metric.name} AS DOUBLE)" for metric in others],
            "readings": [f"{metric.name}_readings" for metric in others],
        }
        if any(metric.quantity for metric in others):
            for stat, column in _STATS.items():
                figures[f"{stat.value}_value"] = [
                    f"CAST({column.format(metric.name)} AS DOUBLE)" if metric.quantity else "NULL" for metric in others
                ]
        yield _FIGURES.format(
            kind=kind,
            figures=",\n    ".join(f"unnest([{', '.join(each)}]) AS {name}" for name, each in figures.items()),
            in_part=",\n        ".join(column for metric in others for column in _in_part(metric)),
            relation=source.relation,
        )


def _in_part(metric: StoredMetric) -> Iterator[str]:
    """Yield the columns of a metric in a part."""
    yield f"{metric.in_part.format(metric.reading)} AS {metric.name}"
    yield f"count({metric.reading}) AS {metric.name}_readings"
    if metric.quantity:
        yield f"avg({metric.reading}) AS {metric.name}_mean"
        yield f"max({metric.reading}) AS {metric.name}_max"
        # A digest: exact quantiles would hold every reading of a run that lasts for days.
        yield f"approx_quantile(CAST({metric.reading} AS DOUBLE), [0.5, 0.95]) AS {metric.name}_quantiles"


_FIGURES = """
INSERT INTO part_figures BY NAME
FROM (
    SELECT run_id, part, {kind} AS part_kind,
    {figures}
    FROM (
        SELECT run_id, part,
        {in_part}
        FROM ({relation}
        )
        GROUP BY run_id, part
    )
)
WHERE value IS NOT NULL OR readings > 0"""


def _insert_results(source: Source, kind: str, metrics: Sequence[StoredMetric]) -> str:
    """Return the statement for metrics that each read a result: a row of readings each, not a column."""
    (in_part,) = {metric.in_part for metric in metrics}
    readings = list(dict.fromkeys(metric.reading for metric in metrics))
    return _RESULT_FIGURES.format(
        kind=kind,
        value=in_part.format("reading"),
        reading=" ".join(f"WHEN {number} THEN {each}" for number, each in enumerate(readings)),
        relation=source.relation,
        metrics=", ".join(f"('{each.name}', '{each.result}', {readings.index(each.reading)})" for each in metrics),
    )


_RESULT_FIGURES = """
INSERT INTO part_figures BY NAME
SELECT run_id, part, {kind} AS part_kind, metric, CAST({value} AS DOUBLE) AS value, count(reading) AS readings
FROM (
    SELECT run_id, part, time, metric, CASE number {reading} END AS reading
    FROM ({relation}
    )
    JOIN (VALUES {metrics}) AS metrics(metric, name, number) USING (name)
)
WHERE reading IS NOT NULL
GROUP BY run_id, part, metric"""

_INSERT_PART_FIGURES = {source: tuple(_insert_part_figures(source)) for source in SOURCES}


def _over_parts(column: str) -> str:
    """Return SQL of a column over the parts, by the aggregate of the metric."""
    cases = (f"WHEN '{each}' THEN {each}({column})" for each in sorted({metric.over_parts for metric in METRICS}))
    return f"CASE over_parts {' '.join(cases)} END AS {column}"


_OVER_PARTS = {
    "metrics": [metric.name for metric in METRICS],
    "units": [metric.unit for metric in METRICS],
    "aggregates": [metric.over_parts for metric in METRICS],
}

_INSERT = f"""
INSERT INTO run_metrics BY NAME
SELECT * EXCLUDE (over_parts)
FROM (
    SELECT run_id, CAST($computed_at AS TIMESTAMP) AS computed_at, metric, unit, over_parts,
           CAST(sum(readings) AS BIGINT) AS samples,
           {", ".join(map(_over_parts, ("value", *(f"{stat.value}_value" for stat in _STATS))))}
    FROM part_figures JOIN (
        SELECT unnest($metrics) AS metric, unnest($units) AS unit, unnest($aggregates) AS over_parts
    ) AS metrics USING (metric)
    GROUP BY run_id, metric, unit, over_parts
)
WHERE isfinite(value)"""  # noqa: S608 - of ours

# Of runs with several GPUs, ranks or nodes; ranks on CPUs have no devices, but results.
_INSERT_PARTS = """
INSERT INTO run_metric_parts BY NAME
SELECT run_id, CAST($computed_at AS TIMESTAMP) AS computed_at, part_kind, part, metric, value, max_value
FROM part_figures
WHERE part_kind IS NOT NULL AND part IS NOT NULL AND isfinite(value) AND run_id IN (
    SELECT run_id
    FROM (
        SELECT run_id, device_id, rank, node_id FROM run_devices SEMI JOIN lives USING (run_id)
        UNION ALL
        SELECT run_id, NULL, NULL, node_id FROM run_requests SEMI JOIN lives USING (run_id)
        UNION ALL
        SELECT run_id, NULL, rank, NULL FROM results SEMI JOIN lives USING (run_id)
        WHERE time BETWEEN $life_from AND $life_to
    )
    GROUP BY run_id
    HAVING count(DISTINCT device_id) > 1 OR count(DISTINCT rank) > 1 OR count(DISTINCT node_id) > 1
)"""
