"""Figures of a run's metrics by row and side: dots with intervals, and bars with values."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from gpuagent_collector.compare.figures import Figure
from gpuagent_collector.compare.matrix import Matrix
from gpuagent_collector.metrics import Metric
from gpuagent_collector.plot.picture import (
    QUIET,
    WIDE_MM,
    Picture,
    characters,
    color,
    fold,
    hatch,
    marker,
    name_side,
    only_side,
    shorten_names,
    write_counts,
)
from gpuagent_collector.present.human import Notation, notation
from gpuagent_collector.statistics.summaries import median_interval

# Height of a side's line of dots, and of its bar with a value.
_DOTS_MM, _BAR_MM = 2.4, 2.9
# A panel with values this far apart has a logarithmic axis.
_LOGARITHMIC = 30
# Of a figure's width: names of rows at most.
_NAMES_SHARE = 0.34


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slots:
    """The places of all figures, the same in every panel, from above.

    Attributes:
        places: (row, part, side) → its height, in lines.
        ticks: names of rows at their heights.
        is_flat: whether names beside the marks suffice: one row, or one side in each row.
    """

    places: Mapping[tuple[str, str | None, str], float]
    ticks: tuple[tuple[float, str], ...]
    lines: float
    is_flat: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """One figure at its height."""

    y: float
    series: int
    figure: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class _Panel:
    """A metric's figures."""

    axes: Axes
    scale: Notation
    marks: tuple[_Mark, ...]


def draw_dots(matrix: Matrix, width_mm: float) -> Picture:
    """Return each run as a dot, and the median over runs with its 95 % interval."""
    figures = [figure for line in matrix.lines for figure in line.figures.values()]
    has_lines = any(median_interval(figure.values.tolist()) for figure in figures)
    lines = ", the line its 95 % interval (sign test, from 6 runs on)" if has_lines else ""
    note = f"Each run is a small circle; the large mark is the median over runs{lines}."
    picture, panels = _picture(matrix, width_mm, _DOTS_MM, note)
    for panel in panels:
        divisor = panel.scale.divisor
        for mark in panel.marks:
            own, figure = color(mark.series), mark.figure
            values, ends = figure.values / divisor, median_interval(figure.values.tolist())
            dots: dict[str, Any] = {"ls": "none", "marker": "o", "ms": 2.2, "mfc": "none", "mec": QUIET, "mew": 0.4}
            panel.axes.plot(values, [mark.y] * figure.runs, zorder=2, **dots)
            if ends:
                panel.axes.plot([end / divisor for end in ends], [mark.y, mark.y], color=own, lw=1.2, zorder=3)
            panel.axes.plot(figure.median / divisor, mark.y, marker=marker(mark.series), color=own, ms=4.2, zorder=4)
        lowest = min(mark.figure.lowest for mark in panel.marks)
        highest = max(mark.figure.highest for mark in panel.marks)
        if lowest > 0 and highest / lowest > _LOGARITHMIC:
            panel.axes.set_xscale("log")
        panel.axes.margins(x=0.06)
        _write_numbers(panel.axes)
    return picture


def draw_bars(matrix: Matrix, width_mm: float) -> Picture:
    """Return the median over runs as a bar with its value, and the range over runs as a line."""
    has_lines = any(figure.runs > 1 for line in matrix.lines for figure in line.figures.values())
    note = f"Medians over runs{'; lines from the lowest to the highest run' if has_lines else ''}."
    picture, panels = _picture(matrix, width_mm, _BAR_MM, note)
    for panel in panels:
        divisor = panel.scale.divisor
        highest = max(mark.figure.highest for mark in panel.marks) / divisor
        for mark in panel.marks:
            low, high = mark.figure.lowest / divisor, mark.figure.highest / divisor
            style: dict[str, Any] = {"hatch": hatch(mark.series), "edgecolor": "white", "linewidth": 0}
            panel.axes.barh(mark.y, mark.figure.median / divisor, 0.82, color=color(mark.series), **style)
            if mark.figure.runs > 1:
                panel.axes.plot([low, high], [mark.y, mark.y], color=QUIET, lw=0.9, marker="|", ms=3, mew=0.9)
            place = max(high, 0) + 0.015 * highest
            text = panel.scale.write_bare(mark.figure.median)
            panel.axes.text(place, mark.y, text, va="center", fontsize=picture.size - 1.5)
        panel.axes.margins(x=0)
        # Room for the values.
        panel.axes.set_xlim(right=(highest or 1) * (1.16 if len(panels) == 1 else 1.28))
        _write_numbers(panel.axes)
    return picture


def _picture(matrix: Matrix, width_mm: float, line_mm: float, note: str) -> tuple[Picture, list[_Panel]]:
    """Return a figure with a panel for each unit of a metric, and its legend."""
    slots = _find_slots(matrix)
    metrics = list(dict.fromkeys((line.metric, line.unit) for line in matrix.lines))
    # At most three in a row, and rows as full as they can be: four are two and two.
    columns = -(-len(metrics) // -(-len(metrics) // 3)) if width_mm >= WIDE_MM else 1
    numbers = {figure.runs for line in matrix.lines for figure in line.figures.values()}
    runs = f"n = {write_counts(numbers)}{' runs' if len(numbers) > 1 else ''}{only_side(matrix.sides, matrix.columns)}"
    picture = Picture(width_mm=width_mm, note=f"{note} {runs}.")
    for index, side in enumerate(() if slots.is_flat else matrix.sides):
        line = Line2D([], [], color=color(index), marker=marker(index), lw=1.2)
        patch = Patch(facecolor=color(index), hatch=hatch(index), edgecolor="white", linewidth=0)
        picture.legend.append((patch if line_mm == _BAR_MM else line, name_side(side, matrix.columns)))
    if slots.is_flat:
        line_mm = max(line_mm, picture.line_mm)
    most = characters(picture.width_mm * _NAMES_SHARE, picture.size - 1)
    closest = min((below - above for (above, _), (below, _) in pairwise(slots.ticks)), default=slots.lines)
    if not slots.is_flat and any(len(name) > most for _, name in slots.ticks):
        # Room for names in two lines.
        line_mm = max(line_mm, 2 * picture.line_mm / closest)
    axes = picture.grid(len(metrics), max(8.0, slots.lines * line_mm), columns)
    name_rows = shorten_names if slots.is_flat else fold
    names = name_rows([name for _, name in slots.ticks], most)
    panels = []
    for number, (one, (metric, unit)) in enumerate(zip(axes, metrics, strict=True)):
        one.set_yticks([y for y, _ in slots.ticks], [""] * len(names) if number % columns else names)
        one.set_ylim(slots.lines - 0.4, -0.6)
        one.tick_params(axis="y", length=0)
        one.grid(axis="x")
        panels.append(_panel(one, matrix, metric, unit, slots))
    return picture, panels


def _find_slots(matrix: Matrix) -> _Slots:
    rows: dict[tuple[str, str | None], list[str]] = defaultdict(list)
    for line in matrix.lines:
        rows[line.row, line.part] += line.figures
    is_flat = len(rows) == 1 or all(len(set(sides)) == 1 for sides in rows.values())
    places: dict[tuple[str, str | None, str], float] = {}
    ticks: list[tuple[float, str]] = []
    y, gap = 0.0, 0.0 if is_flat else 0.7
    for (row, part), found in rows.items():
        first, name = y, ", ".join(filter(None, (row, part)))
        for side in (side for side in matrix.sides if side in found):
            places[row, part, side] = y
            if is_flat:
                own = side if len(rows) == 1 else name if side == row or len(matrix.sides) == 1 else f"{name} · {side}"
                ticks.append((y, own))
            y += 1
        if not is_flat:
            ticks.append(((first + y - 1) / 2, name))
        y += gap
    return _Slots(places=places, ticks=tuple(ticks), lines=y - gap, is_flat=is_flat)


def _panel(axes: Axes, matrix: Matrix, metric: Metric, unit: str, slots: _Slots) -> _Panel:
    lines = [line for line in matrix.lines if (line.metric, line.unit) == (metric, unit)]
    medians = [figure.median for line in lines for figure in line.figures.values()]
    scale = notation(medians, unit)
    axes.set_title(f"{metric.titled(matrix.stat)}{f' ({scale.symbol})' if scale.symbol else ''}")
    marks = (
        _Mark(
            y=slots.places[line.row, line.part, side],
            series=0 if slots.is_flat else matrix.sides.index(side),
            figure=figure,
        )
        for line in lines
        for side, figure in line.figures.items()
    )
    return _Panel(axes=axes, scale=scale, marks=tuple(marks))


def _write_numbers(axes: Axes) -> None:
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    if axes.get_xscale() == "linear":
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
