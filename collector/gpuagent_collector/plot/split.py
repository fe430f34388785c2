"""Stacks of layers that `memory-limit` tried: time of a step, and number of layers, by their share."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from matplotlib.axes import Axes

from gpuagent_collector.answers.show import Stack, load_stacks
from gpuagent_collector.compare.matrix import Selection, label_row
from gpuagent_collector.plot.picture import Picture, color, line_style
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.cells import Cell
from gpuagent_common.errors import GpuAgentError

WORKLOAD = "memory-limit"

_PANEL_MM = {True: 42.0, False: 36.0}
# Shares this close would cover one another on an axis from 0 to 100 %.
_CLOSE_PERCENT = 20.0
# Of GPU 0, GPU 1, …
_PARTS = ("^", "v", "<", ">")
_SHARES = {False: "convolutions among the layers (%)", True: "layers on GPU 0 (%)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """A stack, and its parts where it is split."""

    stack: Stack
    parts: tuple[Stack, ...]

    @property
    def percent(self) -> float:
        """The share of convolutions; of a split stack the share of layers on the first GPU."""
        part = self.parts[0].conv + self.parts[0].fc if self.parts else self.stack.conv
        return 100 * part / (self.stack.conv + self.stack.fc)


# Name of a series → its points, by their share.
Series = Mapping[str, Sequence[_Point]]


def draw_split(ask: Ask, chosen: Selection, width_mm: float) -> Picture:
    """Return the time of a step and the layers of each stack, those on one GPU apart from those that are split.

    Raises:
        GpuAgentError: no run reports stacks.
    """
    cells = _cells(chosen)
    found = {name: sorted(_points(ask, of_side), key=_place) for name, of_side in cells.items()}
    kinds = {
        is_split: {name: of_kind for name, points in found.items() if (of_kind := _of_kind(points, is_split=is_split))}
        for is_split in (False, True)
    }
    drawn = {is_split: series for is_split, series in kinds.items() if series}
    if not drawn:
        raise GpuAgentError(f"no run reports stacks of layers; run: gpuagent run {WORKLOAD} --ratios 3:1,1:1,1:3")
    names = [name for name in found if any(name in series for series in drawn.values())]
    parts = " △, ▽: the time that GPU 0 and GPU 1 compute." if True in drawn else ""
    points = [point for series in drawn.values() for of_one in series.values() for point in of_one]
    crosses = "" if all(point.stack.fits for point in points) else " ×: out of memory."
    picture = Picture(width_mm=width_mm, note=f"Medians over runs.{crosses}{parts}")
    for index, name in enumerate(names):
        number = sum(len(cell.runs) for cell in cells[name])
        picture.name_line(f"{name} (n = {number})", **line_style(index))
    columns = len(drawn) if picture.is_wide else 1
    panels = picture.panels([_PANEL_MM[picture.is_wide]] * (2 * len(drawn) // columns), columns=columns)
    for number, (is_split, series) in enumerate(drawn.items()):
        first = number if columns > 1 else 2 * number
        _draw(panels[first], panels[first + columns], series, names)
        panels[first + columns].set_xlabel(_SHARES[is_split])
    return picture


def _cells(chosen: Selection) -> Mapping[str, Sequence[Cell]]:
    """Return the cells of each side, whatever points their runs state."""
    layout, cells = chosen.layout, defaultdict[str, list[Cell]](list)
    several = len({block.workload for block in layout.blocks}) > 1
    for block in layout.blocks:
        for cell in (cell for cell in block.cells if cell.runs):
            cells[f"{label_row(block, layout)} · {cell.side}" if several else cell.side].append(cell)
    return cells


def _points(ask: Ask, cells: Sequence[Cell]) -> Iterator[_Point]:
    """Yield the stacks with their parts, which follow them; those of single GPUs within a split are no points."""
    for cell in cells:
        stacks = load_stacks(ask, [run.run_id for run in cell.runs])
        starts = [number for number, stack in enumerate(stacks) if stack.gpu is None]
        for first, end in pairwise([*starts, len(stacks)]):
            stack = stacks[first]
            if stack.conv + stack.fc and not stack.name.startswith("gpu"):
                yield _Point(stack=stack, parts=tuple(stacks[first + 1 : end]))


def _place(point: _Point) -> tuple[float, int]:
    return point.percent, point.stack.conv + point.stack.fc


def _of_kind(points: Sequence[_Point], *, is_split: bool) -> list[_Point]:
    return [point for point in points if bool(point.parts) == is_split]


def _draw(upper: Axes, lower: Axes, series: Series, names: Sequence[str]) -> None:
    for name, points in series.items():
        index = names.index(name)
        timed = [(point.percent, _milliseconds(point.stack)) for point in points if point.stack.step_seconds]
        if timed:
            upper.plot(*zip(*timed, strict=True), **line_style(index))
        for point in points:
            for part in (part for part in point.parts if part.step_seconds):
                mark = _PARTS[(part.gpu or 0) % len(_PARTS)]
                upper.plot(point.percent, _milliseconds(part), marker=mark, color=color(index), mfc="none")
        fitting = [(point.percent, point.stack.conv + point.stack.fc) for point in points if point.stack.fits]
        if fitting:
            lower.plot(*zip(*fitting, strict=True), **line_style(index))
        for point in (point for point in points if not point.stack.fits):
            layers = point.stack.conv + point.stack.fc
            lower.plot(point.percent, layers, marker="x", color=color(index), ms=6, mew=1.4)
    if not upper.lines:
        # Without a time there is no scale.
        upper.set_axis_off()
    upper.set_ylabel("step (ms)")
    lower.set_ylabel("layers")
    shares = [point.percent for points in series.values() for point in points]
    span = max(shares) - min(shares)
    for axes in (upper, lower):
        axes.set_xlim(*((min(shares) - span, max(shares) + span) if 0 < span < _CLOSE_PERCENT else (-4, 104)))
        axes.set_ylim(0, 1.12 * axes.dataLim.y1 if axes.lines else 1)
        axes.grid()


def _milliseconds(stack: Stack) -> float:
    return 1000 * median(stack.step_seconds)
