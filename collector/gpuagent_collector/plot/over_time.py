"""Curves: of median runs over time, a panel a quantity; of each run by step, what it reports, such as the loss."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from statistics import median
from typing import Any

from matplotlib.axes import Axes

from gpuagent_collector.choices import PartKind
from gpuagent_collector.compare.matrix import Selection, label_row
from gpuagent_collector.plot.picture import (
    QUIET,
    SHADE,
    WIDE_MM,
    Picture,
    color,
    curve_style,
    line_style,
    name_side,
    only_side,
    write_counts,
)
from gpuagent_collector.present.human import notation
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.data import Run
from gpuagent_collector.runs.find import median_run
from gpuagent_collector.runs.series import CHARTS, Chart, Course, Curve, find_ends, load_courses
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.text import counted, harmless

# By the name of a metric.
CURVES: Mapping[str, Chart] = {chart.metric: chart for chart in CHARTS}

# More lines in one panel would be indistinguishable.
MOST_LINES = 12
_PANEL_MM = 24.0
_MEASURE = "measure"


def find_charts(names: Sequence[str]) -> list[Chart]:
    """Return the quantities of these metrics. Raises MisuseError: a metric is not sampled over time."""
    for name in names:
        if name not in CURVES:
            raise MisuseError(f"{name} has no curve over time; these have: {', '.join(CURVES)}")
    return [CURVES[name] for name in names]


def draw_over_time(
    ask: Ask, chosen: Selection, charts: Sequence[Chart], width_mm: float, each: PartKind | None
) -> Picture:
    """Return the curves of the median runs, with shades where they measured.

    Raises GpuAgentError: no run has samples of these quantities.
    """
    # One more shows that some are left out.
    found = [*islice(_lines(ask, chosen, charts, each, buckets=240 if width_mm < WIDE_MM else 480), MOST_LINES + 1)]
    lines, counts = [line for line, _ in found[:MOST_LINES]], {runs for _, runs in found[:MOST_LINES]}
    drawn = [chart for chart in charts if any(chart in line.curves for line in lines)]
    if not drawn:
        names = ", ".join(chart.title for chart in charts)
        raise GpuAgentError(
            f"no samples of {names} in these runs; an agent on their nodes takes them (`gpuagent start`)"
        )
    runs = {line.run.run_id for line in lines}
    missing = [chart.metric for chart in charts if chart not in drawn]
    note = _note(lines, sorted(counts), each, only_side(chosen.layout.sides, chosen.layout.facet))
    if found[MOST_LINES:]:
        note += f" Only the first {len(lines)} are drawn."
    picture = Picture(width_mm=width_mm, note=note, missing=missing)
    for index, line in enumerate(lines if len(lines) > 1 else ()):
        picture.name_line(line.side, **line_style(index), lw=1.2)
    panels = picture.panels([_PANEL_MM] * len(drawn), sharex=True)
    for axes, chart in zip(panels, drawn, strict=True):
        named = len(runs) == 1 and axes is panels[0]
        _draw(axes, chart, lines, room=1.22 if named else 1.14)
        _draw_phases(axes, lines, named=named, size=picture.size)
    panels[-1].set_xlabel("time (s)")
    first, last = find_ends(lines)
    panels[-1].set_xlim(first, last if last > first else first + 1)
    return picture


def _lines(
    ask: Ask, chosen: Selection, charts: Sequence[Chart], each: PartKind | None, *, buckets: int
) -> Iterator[tuple[Course, int]]:
    """Yield the lines of every panel: the median run of each cell, or its parts, and the number of runs."""
    layout = chosen.layout
    for block in sorted(layout.blocks, key=lambda block: (block.row, block.workload)):
        for cell in (cell for cell in block.cells if cell.runs):
            row = label_row(block, layout)
            side = name_side(cell.side, layout.facet)
            name = side if len(layout.blocks) == 1 else row
            if len(layout.blocks) > 1 and len(layout.sides) > 1 and cell.side != block.workload:
                name = f"{row} · {side}"
            run = median_run(cell.runs, chosen.facts, "throughput")
            courses = load_courses(
                ask, replace(run, side=name), chosen.facts, buckets=buckets, charts=charts, each=each
            )
            parts = [course for course in courses[1:] if course.curves]
            # What has no such parts is drawn of the whole run, such as a node's CPU beside its GPUs.
            own = frozenset[Chart]().union(*(part.curves for part in parts))
            rest = {chart: curve for chart, curve in courses[0].curves.items() if chart not in own}
            whole = [replace(courses[0], curves=rest)] if rest or not parts else []
            # A part has no phases of its own.
            for course in (*whole, *parts):
                yield replace(course, phases=courses[0].phases), len(cell.runs)


def _draw(axes: Axes, chart: Chart, lines: Sequence[Course], *, room: float) -> None:
    curves = {index: line.curves[chart] for index, line in enumerate(lines) if chart in line.curves}
    highest = max(reading.high for curve in curves.values() for stretch in curve for reading in stretch)
    scale = notation([highest], chart.unit)
    banded = _is_banded(curves.values())
    for index, stretch in ((index, stretch) for index, curve in curves.items() for stretch in curve):
        seconds = [reading.seconds for reading in stretch]
        if banded:
            low, high = ([getattr(one, end) / scale.divisor for one in stretch] for end in ("low", "high"))
            axes.fill_between(seconds, low, high, color=color(index), alpha=0.18, lw=0, zorder=2)
        means = [reading.mean / scale.divisor for reading in stretch]
        # A single curve needs no marks.
        bare = {"marker": ""} if len(lines) == 1 < len(stretch) else {}
        axes.plot(seconds, means, **{**curve_style(index, len(stretch)), **bare}, zorder=3)
    top = 100.0 if chart.unit == "percent" and highest > 50 else highest / scale.divisor or 1.0
    axes.set_ylim(0, room * top)
    axes.set_title(chart.title if len(lines) > 1 else harmless(f"{chart.title}, {lines[0].side}"))
    axes.set_ylabel(scale.symbol)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.grid(axis="y")


# More areas in one panel would cover one another.
_MOST_AREAS = 3


def _is_banded(curves: Collection[Curve]) -> bool:
    """Return whether a panel's curves have areas: few curves, of which one has a range."""
    readings = [reading for curve in curves for stretch in curve for reading in stretch]
    return len(curves) <= _MOST_AREAS and any(reading.low < reading.high for reading in readings)


def _draw_phases(axes: Axes, lines: Sequence[Course], *, named: bool, size: float) -> None:
    """Shade where runs measured, and mark the phases of a single run; of runs that differ each has a strip."""
    by_run = {line.run.run_id: (index, line) for index, line in reversed([*enumerate(lines)])}
    measured = [
        (index, phase)
        for index, course in reversed(by_run.values())
        for phase in course.phases
        if phase.name == _MEASURE
    ]
    if not measured:
        return
    begin, end = (max(phase.from_seconds for _, phase in measured), min(phase.to_seconds for _, phase in measured))
    longest = max(phase.to_seconds for _, phase in measured)
    axes.axvspan(begin, longest, color=SHADE, lw=0, zorder=0)
    across = axes.get_xaxis_transform()
    if longest - end > 0.02 * (longest - begin):
        for row, (index, phase) in enumerate(measured):
            style: dict[str, Any] = {"color": color(index), "lw": 1.0, "solid_capstyle": "butt", "transform": across}
            axes.plot([phase.from_seconds, phase.to_seconds], [0.99 - 0.035 * row] * 2, zorder=1, **style)
    if len(by_run) == 1:
        ((_, course),) = by_run.values()
        span = course.phases[-1].to_seconds - course.phases[0].from_seconds
        for phase in course.phases:
            axes.axvline(phase.from_seconds, color=QUIET, lw=0.4, ls=(0, (1, 2)), zorder=1)
            # Names of short phases would overlap.
            if named and phase.to_seconds - phase.from_seconds > 0.11 * span:
                middle = (phase.from_seconds + phase.to_seconds) / 2
                words: dict[str, Any] = {"ha": "center", "va": "top", "color": QUIET, "transform": across}
                axes.text(middle, 0.97, phase.name, fontsize=size - 1.5, **words)


def _note(lines: Sequence[Course], counts: Sequence[int], each: PartKind | None, where: str) -> str:
    run_ids = {line.run.run_id for line in lines}
    if len(run_ids) == 1:
        yielded = f"Run {lines[0].run.run_id}{f', the median of n = {counts[0]}' if counts[0] > 1 else ''}."
    else:
        yielded = (
            f"Lines are median runs{where}, n = {write_counts(counts)}." if counts[-1] > 1 else f"Runs{where}, n = 1."
        )
    is_measured = any(phase.name == _MEASURE for line in lines for phase in line.phases)
    zero = "0 s is the start of the measured phase, which is shaded." if is_measured else "0 s is the start."
    means = "" if each else " Means over a run's GPUs or nodes."
    every = {chart for line in lines for chart in line.curves}
    of_charts = ([line.curves[one] for line in lines if one in line.curves] for one in every)
    bands = " Areas: from the least to the most." if any(map(_is_banded, of_charts)) else ""
    return f"{yielded} {zero}{means}{bands}"


_POINTS = 300
_STEP_PANEL_MM = 34.0
# step → value, of each run.
Curves = Mapping[str, Mapping[float, float]]


def draw_by_step(ask: Ask, chosen: Selection, names: Sequence[str], width_mm: float) -> Picture:
    """Return a panel for each reported figure, with a line for each row and side.

    Raises GpuAgentError: no run reports one of them by step.
    """
    series = _series(chosen)
    lines = dict(list(series.items())[:MOST_LINES])
    run_ids = [run.run_id for runs in lines.values() for run in runs]
    read = {name: _read(ask, run_ids, name) for name in names}
    found = {name: answer for name, answer in read.items() if answer[0]}
    if not found:
        known = names_by_step(ask, run_ids)
        there = f"these are: {', '.join(known)}" if known else "these runs report nothing by step"
        raise GpuAgentError(f"no run reports {' or '.join(names)} by step; {there}")
    rest = f" The first {len(lines)} of {len(series)} lines are drawn." if len(series) > len(lines) else ""
    width = max(found_width for _, found_width in found.values())
    means = f" Points are means over {width:,} steps." if width > 1 else ""
    rows = [row for row in ask(_THINNED, [run_ids]) if not set(names).isdisjoint(row["metrics"])]
    thinned = ""
    if rows:
        of = counted(len({row["run_id"] for row in rows}), "run")
        thinned = f" Of {of} one printed value in {max(row['every'] for row in rows)} is stored, and lines join those."
    note = f"Thin lines are runs, thick ones medians over runs.{means}{thinned}{rest}"
    picture = Picture(width_mm=width_mm, note=note, missing=[name for name in names if name not in found])
    for index, (name, runs) in enumerate(lines.items()):
        picture.name_line(f"{name} (n = {len(runs)})", **line_style(index), lw=1.4)
    panels = picture.panels([_STEP_PANEL_MM] * len(found), sharex=True)
    for axes, (name, (curves, _)) in zip(panels, found.items(), strict=True):
        for index, runs in enumerate(lines.values()):
            _draw_steps(axes, [curves[run.run_id] for run in runs if run.run_id in curves], index)
        axes.set_ylabel(harmless(name))
        axes.grid()
    panels[-1].set_xlabel("step")
    return picture


def names_by_step(ask: Ask, run_ids: Sequence[str], least: int = 1) -> list[str]:
    """Return the names of what these runs report by step, in so many steps at least."""
    return [row["name"] for row in ask(_NAMES, [list(run_ids), least])]


def _series(chosen: Selection) -> Mapping[str, Sequence[Run]]:
    """Return the runs of each row and side."""
    layout, found = chosen.layout, defaultdict[str, list[Run]](list)
    for block in sorted(layout.blocks, key=lambda block: (block.row, block.workload)):
        for cell in block.cells:
            row = label_row(block, layout)
            several = len(layout.blocks) > 1 and cell.side != row
            side = name_side(cell.side, layout.facet)
            name = f"{row} · {side}" if several and len(layout.sides) > 1 else row if several else side
            found[name] += cell.runs
    return {name: runs for name, runs in found.items() if runs}


def _read(ask: Ask, run_ids: Sequence[str], name: str) -> tuple[Curves, int]:
    """Return the curves of a figure, and the number of steps in each of their points."""
    curves: dict[str, dict[float, float]] = defaultdict(dict)
    rows = ask(_VALUES.format(points=_POINTS), [name, list(run_ids)])
    for row in rows:
        curves[row["run_id"]][row["step"]] = row["value"]
    return curves, rows[0]["width"] if rows else 1


def _draw_steps(axes: Axes, curves: Sequence[Mapping[float, float]], index: int) -> None:
    together: dict[float, list[float]] = defaultdict(list)
    for curve in curves:
        for step, value in curve.items():
            together[step].append(value)
        if len(curves) > 1:
            axes.plot(list(curve), list(curve.values()), color=color(index), lw=0.5, alpha=0.45)
    steps = sorted(together)
    if steps:
        middle = [median(together[step]) for step in steps]
        axes.plot(steps, middle, **curve_style(index, len(steps)), lw=1.4, zorder=3)


_NAMES = """
SELECT name FROM run_events WHERE event = 'metric' AND run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))
GROUP BY name HAVING greatest(1, count(DISTINCT TRY_CAST(detail->>'step' AS BIGINT))) >= ? ORDER BY name"""

# Of the first rank, and of a long run the means over as many steps.
_VALUES = """
WITH reported AS (
    SELECT run_id, rank, TRY_CAST(detail->>'step' AS BIGINT) AS step, TRY_CAST(detail->>'value' AS DOUBLE) AS value
    FROM run_events
    WHERE event = 'metric' AND name = ? AND run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))
),
first AS (
    SELECT run_id, step, arg_min(value, coalesce(rank, 0)) AS value FROM reported
    WHERE step IS NOT NULL AND isfinite(value) GROUP BY ALL
),
width AS (SELECT greatest(1, (max(step) - min(step)) // {points}) AS width FROM first)
SELECT run_id, step // width * width AS step, avg(value) AS value, any_value(width) AS width
FROM first, width GROUP BY ALL ORDER BY step"""

_THINNED = """
SELECT run_id, TRY_CAST(detail->>'every' AS BIGINT) AS every, TRY_CAST(detail->'metrics' AS VARCHAR[]) AS metrics
FROM run_events WHERE event = 'thinned' AND run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))
    AND every IS NOT NULL AND metrics IS NOT NULL  -- a program's own events can have this name too"""
