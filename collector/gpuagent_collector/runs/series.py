"""The course of one run: what its nodes and GPUs did over time, and where its phases lie."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.data import Facts, Record, Run

# Points a curve: two for each of the columns that a wide terminal has for it.
_POINTS = 240

# (seconds since the trace's zero, value).
Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One quantity that is drawn: `column` of `table`, the mean over the run's nodes or GPUs."""

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
    """Return the relation of what is drawn, as it was read or as what it was thinned out to.

    It has `key`, `time` and of each chart its column, the same with `_low` and with `_high`.
    """
    names = [chart.column for chart in charts]
    read = ", ".join(f"{name}, {name} AS {name}_low, {name} AS {name}_high" for name in names)
    thinned = ", ".join(f"{name}.mean, {name}.min, {name}.max" for name in names)
    return _READINGS.format(
        key=key, read=read, table=table, thinned=thinned, rollups=table.replace("_samples", "_rollups")
    )


def load_phases(ask: Ask, run: Run) -> tuple[datetime | None, tuple[Phase, ...]]:
    """Return a run's zero, as a trace has it, and its phases; None: it has no zero, since it never started."""
    rows = ask(_PHASES, [run.run_id, run.run_id])
    zero = next((row["time"] for row in rows if row["name"] == "measure"), run.started_at)
    return zero, _phases(rows, run.ended_at, zero)


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
            curves |= {chart: points for chart in charts if (points := _points(rows, chart.column))}
    return curves


def _points(rows: Iterable[Record], column: str) -> Points:
    return tuple((row["seconds"], row[column]) for row in rows if row[column] is not None)


def _phases(rows: Sequence[Record], ended_at: datetime | None, zero: datetime | None) -> tuple[Phase, ...]:
    if zero is None or ended_at is None:
        return ()
    marks = [(row["name"], (row["time"] - zero).total_seconds()) for row in rows]
    marks.append(("end", (ended_at - zero).total_seconds()))
    return tuple(
        Phase(name=name, from_seconds=start, to_seconds=end)
        for (name, start), (_, end) in pairwise(marks)
        if name != "end"
    )


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
