"""The course of one run of each side: what its nodes and GPUs did over time, as means with what they vary between."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from gpuagent_collector.query.ask import Ask
from gpuagent_collector.query.execute import Parameter
from gpuagent_collector.runs.data import Facts, Record, Run
from gpuagent_collector.runs.series import Chart, Phase, load_phases, readings_of

# Points of a curve at most: about one for each pixel that it has.
_BUCKETS = 500
_LEAST_BUCKET_SECONDS = 0.05
# A curve is interrupted where more buckets in a row are empty, for longer than so many samples take.
_BREAK_BUCKETS, _BREAK_DISTANCES = 12, 3

# Each is drawn as the mean over the run's nodes or GPUs.
CHARTS: tuple[Chart, ...] = (
    Chart(title="Node CPU", unit="percent", table="host_samples", column="cpu_percent"),
    Chart(title="Node memory used", unit="bytes", table="host_samples", column="memory_used_bytes"),
    Chart(title="GPU utilisation", unit="percent", table="gpu_samples", column="utilization_percent"),
    Chart(title="SMs active", unit="percent", table="gpu_samples", column="sm_active_percent"),
    Chart(title="Tensor pipes active", unit="percent", table="gpu_samples", column="tensor_active_percent"),
    Chart(title="Device memory bandwidth", unit="percent", table="gpu_samples", column="dram_active_percent"),
    Chart(title="GPU memory used", unit="bytes", table="gpu_samples", column="memory_used_bytes"),
    Chart(title="Power, each GPU", unit="watts", table="gpu_samples", column="power_watts"),
    Chart(title="GPU temperature", unit="celsius", table="gpu_samples", column="temperature_celsius"),
    Chart(title="SM clock", unit="megahertz", table="gpu_samples", column="sm_clock_mhz"),
)

# Table → whose samples it has.
_OWNERS = {"host_samples": "node_id", "gpu_samples": "device_id"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One bucket of a curve: the mean of what was read in it, the least and the most; seconds since the zero."""

    seconds: float
    mean: float
    low: float
    high: float


# Stretches without an interruption.
Curve = tuple[tuple[Reading, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One run over time. Zero is the start of its measure phase, or of the run where it reported none."""

    side: str
    run: Run
    phases: tuple[Phase, ...]
    curves: Mapping[Chart, Curve]


def load_course(ask: Ask, run: Run, facts: Facts) -> Course:
    """Read the samples of a run's own nodes and GPUs."""
    zero, phases = load_phases(ask, run)
    return Course(side=run.side or "", run=run, phases=phases, curves=_curves(ask, run, zero, facts))


def _curves(ask: Ask, run: Run, zero: datetime | None, facts: Facts) -> dict[Chart, Curve]:
    if run.started_at is None or run.ended_at is None or zero is None:
        return {}
    seconds = (run.ended_at - run.started_at).total_seconds()
    width = max(seconds / _BUCKETS, _LEAST_BUCKET_SECONDS)
    curves: dict[Chart, Curve] = {}
    for table, records in (("host_samples", facts.sessions), ("gpu_samples", facts.devices)):
        charts = [chart for chart in CHARTS if chart.table == table]
        keys = sorted({record[_OWNERS[table]] for record in records.get(run.run_id, [])})
        if keys:
            period: list[Parameter] = [str(zero), keys, str(run.started_at), str(run.ended_at)]
            rows = ask(_statement(table, charts, width), period)
            curves |= {chart: curve for chart in charts if (curve := _curve(rows, chart.column, width))}
    return curves


def _statement(table: str, charts: Sequence[Chart], width: float) -> str:
    columns = ", ".join(
        f"avg({name}) AS {name}, min({name}_low) AS {name}_low, max({name}_high) AS {name}_high"
        for name in (chart.column for chart in charts)
    )
    key = _OWNERS[table]
    return _SAMPLES.format(columns=columns, readings=readings_of(table, key, charts), key=key, width=width)


def _curve(rows: Iterable[Record], column: str, width: float) -> Curve:
    readings = [
        Reading(seconds=row["seconds"], mean=row[column], low=row[f"{column}_low"], high=row[f"{column}_high"])
        for row in rows
        if row[column] is not None
    ]
    return tuple(_stretches(readings, width))


def _stretches(readings: Sequence[Reading], width: float) -> Iterator[tuple[Reading, ...]]:
    """Yield the readings, divided where nothing was read for longer than their usual distance explains."""
    distances = sorted(after.seconds - before.seconds for before, after in pairwise(readings))
    usual = distances[len(distances) // 2] if distances else width
    longest = max(_BREAK_BUCKETS * width, _BREAK_DISTANCES * usual)
    stretch: list[Reading] = []
    for reading in readings:
        if stretch and reading.seconds - stretch[-1].seconds > longest:
            yield tuple(stretch)
            stretch = []
        stretch.append(reading)
    if stretch:
        yield tuple(stretch)


_SAMPLES = """
SELECT floor(epoch(time - CAST(? AS TIMESTAMP)) / {width}) * {width} AS seconds, {columns}
FROM {readings}
WHERE {key} IN (SELECT unnest(CAST(? AS BIGINT[])))
    AND time BETWEEN CAST(? AS TIMESTAMP) AND CAST(? AS TIMESTAMP)
GROUP BY seconds ORDER BY seconds"""
