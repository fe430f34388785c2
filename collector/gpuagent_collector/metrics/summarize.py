"""Summaries of runs, computed once at their end and stored, so that comparing thousands of runs reads no samples."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import duckdb

from gpuagent_collector.choices import Stat
from gpuagent_collector.metrics import METRICS, StoredMetric
from gpuagent_collector.metrics.metric_sources import SOURCES, Source
from gpuagent_collector.metrics.run_energy import LIVES, WINDOWS, insert_energy


def summarize_runs(connection: duckdb.DuckDBPyConnection, run_ids: Sequence[str], computed_at: datetime) -> None:
    """Append the figures of the runs that have ended to run_energy and run_metrics, and of their parts.

    GPUs on which NVML saw a run's processes, and which it did not report itself, are added to run_devices first; both
    belong in one transaction. Computing a run again is harmless: the view `metrics` shows only the rows of the last
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
    wanted |= {"computed_at": computed_at}
    insert_energy(connection, wanted)
    window = {"from_time": bounds[0], "to_time": bounds[1]}
    connection.execute(_INSERT, wanted | window)
    lives = {name: wanted[name] for name in ("run_ids", "life_from", "life_to")}
    several = [run_id for (run_id,) in connection.execute(_SEVERAL, lives).fetchall()]
    if several:
        connection.execute(_INSERT_PARTS, wanted | window | {"run_ids": several})


def _figures(source: Source) -> str:
    """Return the SELECT of a source's metrics: run_id and, in `figure`, the columns of run_metrics."""
    metrics = [metric for metric in METRICS if metric.source is source]
    return _FIGURES.format(
        relation=source.relation,
        in_part=",\n        ".join(column for metric in metrics for column in _in_part(metric)),
        over_parts=",\n    ".join(map(_over_parts, metrics)),
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


# Statistic over time → its column in a part, with {} for the metric's name.
_STATS = {Stat.MEAN: "{}_mean", Stat.MEDIAN: "{}_quantiles[1]", Stat.P95: "{}_quantiles[2]", Stat.MAX: "{}_max"}


def _over_parts(metric: StoredMetric) -> str:
    figure = {
        "metric": f"'{metric.name}'",
        "unit": f"'{metric.unit}'",
        "value": f"CAST({metric.over_parts}({metric.name}) AS DOUBLE)",
        "samples": f"CAST(sum({metric.name}_readings) AS BIGINT)",
    }
    for stat, column in _STATS.items():
        taken = f"{metric.over_parts}({column.format(metric.name)})" if metric.quantity else "NULL"
        figure[f"{stat.value}_value"] = f"CAST({taken} AS DOUBLE)"
    fields = ", ".join(f"'{name}': {sql}" for name, sql in figure.items())
    return f"{{{fields}}}"


# The most by which clocks of a run's nodes may differ. Only a bound on what is read: rows are found by their run.
_SLACK = timedelta(seconds=60)

_ENCLOSING_LIVES = "WITH {lives} SELECT min(started_at), max(ended_at) FROM lives"

_LIFE = _ENCLOSING_LIVES.format(lives=LIVES)

_ENCLOSING_WINDOWS = "WITH {lives}, {windows} SELECT min(from_time), max(to_time) FROM windows"

_BOUNDS = _ENCLOSING_WINDOWS.format(lives=LIVES, windows=WINDOWS)

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

_FIND_DEVICES = _INSERT_DEVICES.format(lives=LIVES)

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
INSERT INTO run_metrics BY NAME
WITH {lives}, {windows}
SELECT run_id, CAST($computed_at AS TIMESTAMP) AS computed_at, figure.*
FROM ({figures}
)
WHERE figure.value IS NOT NULL AND isfinite(figure.value)
"""

_INSERT = _INSERT_FIGURES.format(lives=LIVES, windows=WINDOWS, figures=" UNION ALL ".join(map(_figures, SOURCES)))

# Runs with several GPUs, ranks or nodes; ranks on CPUs have no devices, but results.
_SEVERAL = """
SELECT run_id
FROM (
    SELECT run_id, device_id, rank, node_id FROM run_devices WHERE run_id IN (SELECT unnest($run_ids))
    UNION ALL
    SELECT run_id, NULL, NULL, node_id FROM run_requests WHERE run_id IN (SELECT unnest($run_ids))
    UNION ALL
    SELECT run_id, NULL, rank, NULL FROM results
    WHERE run_id IN (SELECT unnest($run_ids)) AND time BETWEEN $life_from AND $life_to
)
GROUP BY run_id
HAVING count(DISTINCT device_id) > 1 OR count(DISTINCT rank) > 1 OR count(DISTINCT node_id) > 1"""


def _parts(source: Source) -> str:
    """Return the SELECT of the figures of a source's parts: run_id, part, their kind and the columns in `figure`."""
    metrics = [metric for metric in METRICS if metric.source is source]
    assert source.part_kind  # noqa: S101 - chosen below
    figures = (
        f"{{'metric': '{metric.name}', 'value': CAST({metric.name} AS DOUBLE), "
        f"'max_value': CAST({f'{metric.name}_max' if metric.quantity else 'NULL'} AS DOUBLE)}}"
        for metric in metrics
    )
    return _PART_FIGURES.format(
        relation=source.relation,
        kind=source.part_kind.value,
        in_part=",\n        ".join(column for metric in metrics for column in _in_part(metric)),
        figures=",\n    ".join(figures),
    )


_PART_FIGURES = """
SELECT run_id, part, '{kind}' AS part_kind, unnest([
    {figures}
]) AS figure
FROM (
    SELECT run_id, part,
        {in_part}
    FROM ({relation}
    )
    WHERE part IS NOT NULL
    GROUP BY run_id, part
)"""

_INSERT_PART_FIGURES = """
INSERT INTO run_metric_parts BY NAME
WITH {lives}, {windows}
SELECT run_id, CAST($computed_at AS TIMESTAMP) AS computed_at, part_kind, part, figure.*
FROM ({figures}
)
WHERE figure.value IS NOT NULL AND isfinite(figure.value)
"""

_INSERT_PARTS = _INSERT_PART_FIGURES.format(
    lives=LIVES, windows=WINDOWS, figures=" UNION ALL ".join(_parts(one) for one in SOURCES if one.part_kind)
)
