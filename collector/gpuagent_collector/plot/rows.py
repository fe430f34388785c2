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
from gpuagent_collector.plot.picture import (
    QUIET,
    WIDE_MM,
    Picture,
    characters,
    color,
    fold,
    in_bars,
    marker,
    name_side,
    only_side,
    write_counts,
)
from gpuagent_collector.present.human import Notation, notation
from gpuagent_collector.statistics.summaries import median_interval

# Height of a side's line of dots, and of its bar with a value.
_DOTS_MM, _BAR_MM = 2.4, 2.9
# The circles of runs are so much lower than their median, in lines.
_BELOW = 0.36
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


# The axes of a metric with the notation of its figures, and each figure with its height and the place of its series.
_Panel = tuple[Axes, Notation, list[tuple[float, int, Figure]]]


def draw_dots(matrix: Matrix, width_mm: float) -> Picture:
    """Return each run as a dot, and the median over runs with its 95 % interval."""
    figures = [figure for line in matrix.lines for figure in line.figures.values()]
    has_lines = any(median_interval(figure.values.tolist()) for figure in figures)
    lines = ", the line its 95 % interval (sign test)" if has_lines else ""
    note = f"Each run is a small circle below; the large mark is the median over runs{lines}."
    picture, panels = _picture(matrix, width_mm, _DOTS_MM, note)
    for axes, scale, marks in panels:
        divisor = scale.divisor
        for y, index, figure in marks:
            own = color(index)
            values, ends = figure.values / divisor, median_interval(figure.values.tolist())
            dots: dict[str, Any] = {"ls": "none", "marker": "o", "ms": 2.2, "mfc": "white", "mec": QUIET, "mew": 0.4}
            # Below the line, which would hide them.
            axes.plot(values, [y + _BELOW] * figure.runs, zorder=5, **dots)
            if ends:
                axes.plot([end / divisor for end in ends], [y, y], color=own, lw=1.2, zorder=3)
            axes.plot(figure.median / divisor, y, marker=marker(index), color=own, ms=4.2, zorder=4)
        lowest, highest = min(each.lowest for *_, each in marks), max(each.highest for *_, each in marks)
        if lowest > 0 and highest / lowest > _LOGARITHMIC:
            axes.set_xscale("log")
        axes.margins(x=0.06)
        _write_numbers(axes)
    return picture


def draw_bars(matrix: Matrix, width_mm: float) -> Picture:
    """Return the median over runs as a bar with its value, and the range over runs as a line."""
    has_lines = any(figure.runs > 1 for line in matrix.lines for figure in line.figures.values())
    note = f"Medians over runs{'; lines from the lowest to the highest run' if has_lines else ''}."
    picture, panels = _picture(matrix, width_mm, _BAR_MM, note)
    for axes, scale, marks in panels:
        divisor = scale.divisor
        highest = max(each.highest for *_, each in marks) / divisor
        for y, index, figure in marks:
            low, high = figure.lowest / divisor, figure.highest / divisor
            axes.barh(y, figure.median / divisor, 0.82, color=color(index), **in_bars(index))
            if figure.runs > 1:
                axes.plot([low, high], [y, y], color=QUIET, lw=0.9, marker="|", ms=3, mew=0.9)
            place, text = max(high, 0) + 0.015 * highest, scale.write_bare(figure.median)
            axes.text(place, y, text, va="center", fontsize=picture.size - 1.5)
        axes.margins(x=0)
        # Room for the values.
        axes.set_xlim(right=(highest or 1) * (1.16 if len(panels) == 1 else 1.28))
        _write_numbers(axes)
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
        mark = Line2D([], [], color=color(index), marker=marker(index), lw=1.2)
        patch = Patch(facecolor=color(index), **in_bars(index))
        picture.legend.append((patch if line_mm == _BAR_MM else mark, name_side(side, matrix.columns)))
    if slots.is_flat:
        line_mm = max(line_mm, picture.line_mm)
    most = characters(picture.width_mm * _NAMES_SHARE, picture.size - 1)
    closest = min((below - above for (above, _), (below, _) in pairwise(slots.ticks)), default=slots.lines)
    if any(len(name) > most for _, name in slots.ticks):
        # Room for names in two lines.
        line_mm = max(line_mm, 2 * picture.line_mm / closest)
    axes = picture.grid(len(metrics), max(8.0, slots.lines * line_mm), columns)
    names = fold([name for _, name in slots.ticks], most)
    panels = []
    for number, (one, (metric, unit)) in enumerate(zip(axes, metrics, strict=True)):
        one.set_yticks([y for y, _ in slots.ticks], [""] * len(names) if number % columns else names)
        one.set_ylim(slots.lines - 0.4, -0.6)
        one.tick_params(axis="y", length=0)
        one.grid(axis="x")
        lines = [line for line in matrix.lines if (line.metric, line.unit) == (metric, unit)]
        scale = notation([figure.median for line in lines for figure in line.figures.values()], unit)
        one.set_title(f"{metric.titled(matrix.stat)}{f' ({scale.symbol})' if scale.symbol else ''}")
        marks = []
        for line in lines:
            for side, figure in line.figures.items():
                index = 0 if slots.is_flat else matrix.sides.index(side)
                marks.append((slots.places[line.row, line.part, side], index, figure))
        panels.append((one, scale, marks))
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


def _write_numbers(axes: Axes) -> None:
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    if axes.get_xscale() == "linear":
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
