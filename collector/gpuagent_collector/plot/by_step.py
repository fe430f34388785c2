"""Figures of what runs report by step, such as the loss: each run, and the median over runs."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

from matplotlib.axes import Axes

from gpuagent_collector.compare.matrix import Selection, label_row
from gpuagent_collector.plot.picture import Picture, color, dash, name_side
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.data import Run
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.text import counted, harmless

_POINTS = 300
_PANEL_MM = 34.0
_MOST_LINES = 12

# step → value, of each run.
Curves = Mapping[str, Mapping[float, float]]


def draw_by_step(ask: Ask, chosen: Selection, names: Sequence[str], width_mm: float) -> Picture:
    """Return a panel for each reported figure, with a line for each row and side.

    Raises:
        GpuAgentError: no run reports one of them by step.
    """
    series = _series(chosen)
    lines = dict(list(series.items())[:_MOST_LINES])
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
        picture.name_line(f"{name} (n = {len(runs)})", color=color(index), ls=dash(index), lw=1.4)
    panels = picture.panels([_PANEL_MM] * len(found), sharex=True)
    for axes, (name, (curves, _)) in zip(panels, found.items(), strict=True):
        for index, runs in enumerate(lines.values()):
            _draw(axes, [curves[run.run_id] for run in runs if run.run_id in curves], index)
        axes.set_ylabel(harmless(name))
        axes.grid()
    panels[-1].set_xlabel("step")
    return picture


def names_by_step(ask: Ask, run_ids: Sequence[str]) -> list[str]:
    """Return the names of what these runs report by step."""
    return [row["name"] for row in ask(_NAMES, [list(run_ids)])]


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


def _draw(axes: Axes, curves: Sequence[Mapping[float, float]], index: int) -> None:
    together: dict[float, list[float]] = defaultdict(list)
    for curve in curves:
        for step, value in curve.items():
            together[step].append(value)
        if len(curves) > 1:
            axes.plot(list(curve), list(curve.values()), color=color(index), lw=0.5, alpha=0.45)
    steps = sorted(together)
    if steps:
        middle = [median(together[step]) for step in steps]
        axes.plot(steps, middle, color=color(index), ls=dash(index), lw=1.4, marker="." if len(steps) == 1 else "")


_NAMES = """
SELECT DISTINCT name FROM run_events
WHERE event = 'metric' AND run_id IN (SELECT unnest(CAST(? AS VARCHAR[]))) ORDER BY name"""

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
