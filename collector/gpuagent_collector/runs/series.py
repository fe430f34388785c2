"""The course of one run: its nodes, GPUs, processes and steps over time, and its phases."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from math import isfinite
from typing import NamedTuple

from gpuagent_collector.choices import PartKind
from gpuagent_collector.metrics import BY_NAME
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.data import Facts, Record, Run
from gpuagent_collector.runs.parts import label_parts, sessions_of_run
from gpuagent_collector.times import utc_now
from gpuagent_common.quantities import QUANTITIES, How

_LEAST_BUCKET_SECONDS = 0.05
# A curve is interrupted where more buckets in a row are empty, for longer than so many samples take.
_BREAK_BUCKETS, _BREAK_DISTANCES = 12, 3
# Of the usual time of a step: a bucket then has steps of every rank.
_BUCKET_STEPS = 3


@dataclass(frozen=True, slots=True)
class Chart:
    """One quantity to draw.

    Attributes:
        table: `steps`, or a table of samples, of which the curve is the mean over the run's nodes or GPUs.
        column: of that table.
        metric: the figure of a run that has the same quantity.
        total: the column of which it is shown as a share in percent; None: as it is.
        factor: metrics of the run by which the column is multiplied, the second one dividing; '' is 1.
        brief: whether it is among the few that a terminal shows at once.
        heading: the title; empty: the metric's.
    """

    table: str
    column: str
    metric: str
    total: str | None = None
    factor: tuple[str, str] = ("", "")
    brief: bool = False
    heading: str = ""

    @property
    def title(self) -> str:
        """The quantity for people."""
        return self.heading or BY_NAME[self.metric].quantity or BY_NAME[self.metric].title

    @property
    def unit(self) -> str:
        """The unit of the curve, the metric's."""
        return BY_NAME[self.metric].unit

    @property
    def name(self) -> str:
        """A name that is unique within its table."""
        return f"{self.column}{'_share' if self.total else ''}{'_scaled' if self.factor[0] else ''}"


def _sampled(table: str, **after: Chart) -> Iterator[Chart]:
    """Yield the charts of a table's quantities, each followed by that of `after` that is computed from its column."""
    for each in QUANTITIES[table]:
        if each.has_curve:
            yield Chart(table, each.column, each.figure, brief=How.BRIEF in each.how)
            if each.column in after:
                yield after[each.column]


CHARTS: tuple[Chart, ...] = (
    Chart("steps", "items", "throughput", brief=True),
    Chart("steps", "steps", "model_flops_per_second", factor=("model_flops_per_step", ""), heading="Model FLOP/s"),
    *_sampled(
        "host_samples",
        memory_used_bytes=Chart("host_samples", "memory_used_bytes", "memory_used_percent", "memory_total_bytes"),
    ),
    *_sampled("process_samples"),
    *_sampled("cgroup_samples"),
    *_sampled(
        "gpu_samples",
        dram_active_percent=Chart(
            "gpu_samples",
            "dram_active_percent",
            "dram_sampled_bytes_per_second",
            factor=("dram_sampled_bytes_per_second", "dram_active_percent"),
        ),
        memory_used_bytes=Chart("gpu_samples", "memory_used_bytes", "gpu_memory_used_percent", "memory_total_bytes"),
    ),
)


class Table(NamedTuple):
    """The key by which a run's rows of a table are found, its SQL type, and the kind of its parts."""

    key: str
    type: str
    part_kind: PartKind


TABLES: Mapping[str, Table] = {
    "steps": Table("rank", "BIGINT", PartKind.RANK),
    "host_samples": Table("node_id", "BIGINT", PartKind.NODE),
    "process_samples": Table("run_id", "VARCHAR", PartKind.NODE),
    "cgroup_samples": Table("run_id", "VARCHAR", PartKind.NODE),
    "gpu_samples": Table("device_id", "BIGINT", PartKind.GPU),
}


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
class Phase:
    """A stretch of a run, in seconds since the course's zero."""

    name: str
    from_seconds: float
    to_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One run over time, or one of its parts. Zero is the start of its measure phase, or of the run where it has none.

    Attributes:
        side: the run's; of a part with the part's name.
        phases: of the run; () of a part.
    """

    side: str
    run: Run
    phases: tuple[Phase, ...]
    curves: Mapping[Chart, Curve]


def find_ends(courses: Iterable[Course]) -> tuple[float, float]:
    """Return the seconds from the first phase or reading of any course to the last."""
    ends: list[float] = []
    for course in courses:
        ends += [end for phase in course.phases for end in (phase.from_seconds, phase.to_seconds)]
        for stretch in (stretch for curve in course.curves.values() for stretch in curve):
            ends += [stretch[0].seconds, stretch[-1].seconds]
    return min(ends), max(ends)


def load_courses(
    ask: Ask, run: Run, facts: Facts, *, buckets: int, charts: Iterable[Chart] = CHARTS, each: PartKind | None = None
) -> tuple[Course, ...]:
    """Return the course of a run by samples and steps of its own nodes, GPUs, processes and ranks.

    A run that has not ended is shown until now. A curve has at most `buckets` points. After the run's course is one for
    each of its parts of the kind `each`; None: means over all parts.
    """
    zero, phases = load_phases(ask, run)
    side = run.side or run.run_id
    whole: dict[Chart, Curve] = {}
    by_part: dict[str, dict[Chart, Curve]] = {}
    if run.started_at is None or zero is None:
        return (Course(side=side, run=run, phases=phases, curves=whole),)
    window = _Window(
        run=run,
        zero=zero,
        begin=run.started_at,
        end=run.ended_at or utc_now(),
        buckets=buckets,
        session_ids=sessions_of_run(ask, run.run_id),
    )
    labels = label_parts(run, facts, each) if each else {}
    wanted = list(charts)
    for name, (table_key, _, part_kind) in TABLES.items():
        of_table = [chart for chart in wanted if chart.table == name]
        # A part of process_samples is its node's: node_id tells these apart, though rows are found by run.
        part = None if each is not part_kind else "node_id" if each is PartKind.NODE else table_key
        for key, rows in _read(ask, window, facts, of_table, part).items():
            found = {chart: curve for chart in of_table if (curve := _curve(rows, chart, facts, window))}
            if part is None:
                whole |= found
            elif found and key in labels:
                by_part.setdefault(labels[key], {}).update(found)
    parts = (
        Course(side=f"{side} {label}", run=run, phases=(), curves=by_part[label])
        for label in labels.values()
        if label in by_part
    )
    return (Course(side=side, run=run, phases=phases, curves=whole), *parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """The time of a run that is read, and the sessions whose samples are its own."""

    run: Run
    zero: datetime
    begin: datetime
    end: datetime
    buckets: int
    session_ids: Sequence[int]

    @property
    def bucket_seconds(self) -> float:
        return max((self.end - self.begin).total_seconds() / self.buckets, _LEAST_BUCKET_SECONDS)


def _read(
    ask: Ask, window: _Window, facts: Facts, charts: Sequence[Chart], part: str | None
) -> Mapping[object, Sequence[Record]]:
    """Return the buckets of a table's charts, by part; of all parts under None."""
    if not charts:
        return {}
    read = _read_steps if charts[0].table == "steps" else _read_samples
    rows = read(ask, window, facts, charts, part or "NULL")
    groups: dict[object, list[Record]] = defaultdict(list)
    for row in rows:
        groups[row["part"]].append(row)
    return groups


def _read_steps(ask: Ask, window: _Window, _facts: Facts, _charts: Sequence[Chart], part: str) -> Sequence[Record]:
    usual = ask(_USUAL_STEP, [window.run.run_id])[0]["seconds"] or 0.0
    # A step cannot take longer than its run, whatever it reports.
    whole_seconds = (window.end - window.begin).total_seconds()
    width = max(window.bucket_seconds, min(_BUCKET_STEPS * usual, whole_seconds))
    return ask(_STEPS.format(part=part, width=width), [str(window.zero), window.run.run_id])


def _read_samples(ask: Ask, window: _Window, facts: Facts, charts: Sequence[Chart], part: str) -> Sequence[Record]:
    """Return the buckets of all readings, as sampled or as rolled up."""
    table, run_id = charts[0].table, window.run.run_id
    key, key_type, _ = TABLES[table]
    records = {"node_id": facts.sessions, "device_id": facts.devices}.get(key)
    found = {run_id} if records is None else {row[key] for row in records.get(run_id, [])}
    keys = sorted(each for each in found if each is not None)
    if not keys:
        return []
    columns, read, thinned = [], [], []
    for name, chart in {chart.name.removesuffix("_scaled"): chart for chart in charts}.items():
        share = f" * 100.0 / {chart.total}" if chart.total else ""
        columns.append(f"avg({name}) AS {name}, min({name}_low) AS {name}_low, max({name}_high) AS {name}_high")
        read.append(f"{chart.column}{share} AS {name}, {name} AS {name}_low, {name} AS {name}_high")
        thinned += [f"{chart.column}.{each}{share}" for each in ("mean", "min", "max")]
    sql = _SAMPLES.format(
        columns=", ".join(columns),
        keys=", ".join(dict.fromkeys(("session_id", "node_id", key))),
        read=", ".join(read),
        table=table,
        thinned=", ".join(thinned),
        rollups=table.replace("_samples", "_rollups"),
        key=key,
        type=key_type,
        part=part,
        width=window.bucket_seconds,
    )
    return ask(sql, [str(window.zero), keys, window.session_ids, str(window.begin), str(window.end)])


def load_phases(ask: Ask, run: Run) -> tuple[datetime | None, tuple[Phase, ...]]:
    """Return a run's zero, as in `Course`, and its phases; None: it never started."""
    rows = ask(_PHASES, [run.run_id, run.run_id])
    zero = next((row["time"] for row in rows if row["name"] == "measure"), run.started_at)
    if zero is None:
        return zero, ()
    marks = [(row["name"], (row["time"] - zero).total_seconds()) for row in rows]
    marks.append(("end", ((run.ended_at or utc_now()) - zero).total_seconds()))
    return zero, tuple(
        Phase(name=name, from_seconds=start, to_seconds=end)
        for (name, start), (_, end) in pairwise(marks)
        if name != "end"
    )


def _curve(rows: Iterable[Record], chart: Chart, facts: Facts, window: _Window) -> Curve:
    factor = 1.0
    if chart.factor[0]:
        times, by = (facts.value(window.run, name) if name else 1.0 for name in chart.factor)
        if not times or not by:
            return ()
        factor = times / by
    name = chart.name.removesuffix("_scaled")
    readings = [
        Reading(
            seconds=row["seconds"],
            mean=factor * row[name],
            low=factor * row[f"{name}_low"],
            high=factor * row[f"{name}_high"],
        )
        for row in rows
        # Sums of the largest numbers are infinite, and no chart has a place for them.
        if row[name] is not None and isfinite(factor * row[name])
    ]
    return tuple(_stretches(readings, window.bucket_seconds))


def _stretches(readings: Sequence[Reading], width: float) -> Iterator[tuple[Reading, ...]]:
    """Yield the readings, divided where nothing was read for longer than their usual distance explains."""
    distances = sorted(after.seconds - before.seconds for before, after in pairwise(readings))
    # Not the median: where two agents read a GPU, half of the distances are short.
    usual = distances[4 * (len(distances) - 1) // 5] if distances else width
    longest = max(_BREAK_BUCKETS * width, _BREAK_DISTANCES * usual)
    stretch: list[Reading] = []
    for reading in readings:
        if stretch and reading.seconds - stretch[-1].seconds > longest:
            yield tuple(stretch)
            stretch = []
        stretch.append(reading)
    if stretch:
        yield tuple(stretch)


_PHASES = """
SELECT name, time FROM run_events
WHERE run_id = ? AND event = 'phase' AND time IS NOT NULL
    AND rank IS NOT DISTINCT FROM (SELECT min(rank) FROM run_events WHERE run_id = ? AND event = 'phase')
ORDER BY time"""

_SAMPLES = """
SELECT {part} AS part, floor(epoch(time - CAST(? AS TIMESTAMP)) / {width}) * {width} AS seconds, {columns}
FROM (
    SELECT {keys}, time, {read} FROM {table}
    UNION ALL
    SELECT {keys}, time, {thinned} FROM {rollups}
)
WHERE {key} IN (SELECT unnest(CAST(? AS {type}[]))) AND session_id IN (SELECT unnest(CAST(? AS BIGINT[])))
    AND time BETWEEN CAST(? AS TIMESTAMP) AND CAST(? AS TIMESTAMP)
GROUP BY ALL ORDER BY seconds"""

_USUAL_STEP = """
SELECT CAST(approx_quantile(coalesce(gpu_seconds, wall_seconds), 0.5) AS DOUBLE) AS seconds
FROM steps WHERE run_id = ?"""

# Items and steps a second: of each rank in each bucket by the time of its steps, added up over ranks.
_STEPS = """
SELECT {part} AS part, seconds, sum(item_rate) AS items, sum(item_rate) AS items_low, sum(item_rate) AS items_high,
       sum(step_rate) AS steps, sum(step_rate) AS steps_low, sum(step_rate) AS steps_high
FROM (
    SELECT rank, floor(epoch(time - CAST(? AS TIMESTAMP)) / {width}) * {width} AS seconds,
           sum(items) / nullif(sum(coalesce(gpu_seconds, wall_seconds)), 0) AS item_rate,
           count(*) / nullif(sum(coalesce(gpu_seconds, wall_seconds)), 0) AS step_rate
    FROM steps WHERE run_id = ? AND time IS NOT NULL
    GROUP BY ALL
)
GROUP BY ALL ORDER BY seconds"""
