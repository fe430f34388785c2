"""The course of one run: its nodes and GPUs over time, and its phases."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.data import Facts, Run

# Points of a curve: two for each column that a wide terminal has for it.
_POINTS = 240

# (seconds since the trace's zero, value).
Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One quantity to draw: `column` of `table`, the mean over the run's nodes or GPUs."""

    title: str
    unit: str
    table: str
    column: str


CHARTS: tuple[Chart, ...] = (
    Chart(title="Node CPU", unit="percent", table="host_samples", column="cpu_percent"),
    Chart(title="Node memory used", unit="bytes", table="host_samples", column="memory_used_bytes"),
    Chart(title="GPU utilisation", unit="percent", table="gpu_samples", column="utilization_percent"),
    Chart(title="GPU memory used", unit="bytes", table="gpu_samples", column="memory_used_bytes"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A stretch of a run, in seconds since the trace's zero."""

    name: str
    from_seconds: float
    to_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One run over time. Zero is the start of its measure phase, or of the run where it reported none."""

    side: str
    run_id: str
    repeat: int | None
    phases: tuple[Phase, ...]
    curves: Mapping[Chart, Points]


def load_trace(ask: Ask, run: Run, facts: Facts) -> Trace:
    """Read the samples of a run's own nodes and GPUs."""
    zero, phases = load_phases(ask, run)
    return Trace(
        side=run.side or "",
        run_id=run.run_id,
        repeat=run.repeat,
        phases=phases,
        curves=_curves(ask, run, zero, facts),
    )


def readings_of(table: str, key: str, charts: Iterable[Chart]) -> str:
    """Return the relation of all readings, as sampled or as rolled up.

    Its columns: `key`, `time`, and for each chart its column, also with `_low` and `_high`.
    """
    names = [chart.column for chart in charts]
    read = ", ".join(f"{name}, {name} AS {name}_low, {name} AS {name}_high" for name in names)
    thinned = ", ".join(f"{name}.mean, {name}.min, {name}.max" for name in names)
    return _READINGS.format(
        key=key, read=read, table=table, thinned=thinned, rollups=table.replace("_samples", "_rollups")
    )


def load_phases(ask: Ask, run: Run) -> tuple[datetime | None, tuple[Phase, ...]]:
    """Return a run's zero, as in `Trace`, and its phases; None: it never started."""
    rows = ask(_PHASES, [run.run_id, run.run_id])
    zero = next((row["time"] for row in rows if row["name"] == "measure"), run.started_at)
    if zero is None or run.ended_at is None:
        return zero, ()
    marks = [(row["name"], (row["time"] - zero).total_seconds()) for row in rows]
    marks.append(("end", (run.ended_at - zero).total_seconds()))
    return zero, tuple(
        Phase(name=name, from_seconds=start, to_seconds=end)
        for (name, start), (_, end) in pairwise(marks)
        if name != "end"
    )


def _curves(ask: Ask, run: Run, zero: datetime | None, facts: Facts) -> dict[Chart, Points]:
    if run.started_at is None or run.ended_at is None or zero is None:
        return {}
    width = max((run.ended_at - run.started_at).total_seconds() / _POINTS, 0.05)
    curves: dict[Chart, Points] = {}
    for table, key, owners in (
        ("host_samples", "node_id", facts.sessions),
        ("gpu_samples", "device_id", facts.devices),
    ):
        charts = [chart for chart in CHARTS if chart.table == table]
        columns = ", ".join(f"avg({chart.column}) AS {chart.column}" for chart in charts)
        readings = readings_of(table, key, charts)
        keys = [row[key] for row in owners.get(run.run_id, [])]
        if keys:
            sql = _SAMPLES.format(columns=columns, readings=readings, key=key, width=width)
            rows = ask(sql, [str(zero), keys, str(run.started_at), str(run.ended_at)])
            for chart in charts:
                points = [(row["seconds"], row[chart.column]) for row in rows if row[chart.column] is not None]
                curves |= {chart: tuple(points)} if points else {}
    return curves


_PHASES = """
SELECT name, time FROM run_events
WHERE run_id = ? AND event = 'phase'
    AND rank IS NOT DISTINCT FROM (SELECT min(rank) FROM run_events WHERE run_id = ? AND event = 'phase')
ORDER BY time"""

_READINGS = """(
    SELECT {key}, time, {read} FROM {table}
    UNION ALL
    SELECT {key}, time, {thinned} FROM {rollups}
)"""

_SAMPLES = """
SELECT floor(epoch(time - CAST(? AS TIMESTAMP)) / {width}) * {width} AS seconds, {columns}
FROM {readings}
WHERE {key} IN (SELECT unnest(CAST(? AS BIGINT[])))
    AND time BETWEEN CAST(? AS TIMESTAMP) AND CAST(? AS TIMESTAMP)
GROUP BY seconds ORDER BY seconds"""
