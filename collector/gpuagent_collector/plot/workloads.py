"""Figures of single workloads: bandwidth by size of `collectives`, and stacks of layers of `memory-limit` by share."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from matplotlib.axes import Axes

from gpuagent_collector.answers.show_results import Point, Stack, load_points, load_stacks
from gpuagent_collector.compare.matrix import Selection, label_row
from gpuagent_collector.plot.picture import Picture, color, line_style
from gpuagent_collector.present.human import notation
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.cells import Cell
from gpuagent_collector.runs.reported import size_text
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.text import harmless

COLLECTIVES = "collectives"

_LINKS_MM = 42.0
_COLUMNS = 2
# Labels of sizes that fit side by side.
_MOST_TICKS = 6


def draw_links(ask: Ask, chosen: Selection, width_mm: float) -> Picture:
    """Return a curve for each side, and for each number of ranks within it, in a panel for each operation.

    Raises GpuAgentError: no run reports operations by size.
    """
    curves: dict[tuple[str, int | None], list[Point]] = {}
    runs: dict[tuple[str, int | None], int] = {}
    for side in chosen.layout.sides:
        cells = [cell for block in chosen.layout.blocks for cell in block.cells if cell.side == side]
        for point in load_points(ask, [run.run_id for cell in cells for run in cell.runs]):
            if point.pair is None and point.bus_bytes_per_second:
                key = side, point.ranks
                curves.setdefault(key, []).append(point)
                runs[key] = max(runs.get(key, 0), len(point.bus_bytes_per_second))
    if not curves:
        raise GpuAgentError(f"no run reports collectives by size; run: gpuagent run {COLLECTIVES}")
    picture = Picture(width_mm=width_mm, note="Medians over runs. Bus bandwidth as nccl-tests defines it.")
    for index, (side, ranks) in enumerate(curves):
        name = f"{side}, {ranks} ranks" if ranks else side
        picture.name_line(f"{name} (n = {runs[side, ranks]})", **line_style(index))
    operations = list(dict.fromkeys(point.operation for points in curves.values() for point in points))
    columns = _COLUMNS if picture.is_wide and len(operations) > 1 else 1
    panels = picture.grid(len(operations), _LINKS_MM, columns)
    scale = notation([median(point.bus_bytes_per_second) for points in curves.values() for point in points], "bytes/s")
    for axes, operation in zip(panels, operations, strict=True):
        sizes: set[int] = set()
        for index, points in enumerate(curves.values()):
            own = [point for point in points if point.operation == operation]
            sizes |= {point.size_bytes for point in own}
            rates = [median(point.bus_bytes_per_second) / scale.divisor for point in own]
            axes.plot([point.size_bytes for point in own], rates, **line_style(index))
        axes.set(xscale="log", ylabel=f"bus bandwidth ({scale.symbol})", title=harmless(operation))
        # Every size, or every second, third, …, and the last.
        ticks = sorted(sizes)[::-1][:: -(-len(sizes) // _MOST_TICKS)][::-1]
        axes.set_xticks(ticks, [size_text(size) for size in ticks])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.grid()
    return picture


MEMORY_LIMIT = "memory-limit"

_STACKS_MM = {True: 42.0, False: 36.0}
# Shares this close would cover one another on an axis from 0 to 100 %.
_CLOSE_PERCENT = 20.0
# Of GPU 0, GPU 1, …
_PARTS = ("^", "v", "<", ">")
_SHARES = {False: "convolutions among the layers (%)", True: "layers on GPU 0 (%)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stacked:
    """A stack, and its parts where it is split."""

    stack: Stack
    parts: tuple[Stack, ...]

    @property
    def layers(self) -> int:
        """The number of its layers."""
        return self.stack.conv + self.stack.fc

    @property
    def percent(self) -> float:
        """The share of convolutions; of a split stack the share of layers on the first GPU."""
        part = self.parts[0].conv + self.parts[0].fc if self.parts else self.stack.conv
        return 100 * part / self.layers


def draw_split(ask: Ask, chosen: Selection, width_mm: float) -> Picture:
    """Return the time of a step and the layers of each stack, those on one GPU apart from those that are split.

    Raises GpuAgentError: no run reports stacks.
    """
    # The cells of each side, whatever points their runs state.
    layout, cells = chosen.layout, defaultdict[str, list[Cell]](list)
    several = len({block.workload for block in layout.blocks}) > 1
    for block in layout.blocks:
        for cell in (cell for cell in block.cells if cell.runs):
            cells[f"{label_row(block, layout)} · {cell.side}" if several else cell.side].append(cell)
    found: dict[bool, dict[str, list[_Stacked]]] = {False: {}, True: {}}
    for name, of_side in cells.items():
        for point in sorted(_stacks(ask, of_side), key=lambda each: (each.percent, each.layers)):
            found[bool(point.parts)].setdefault(name, []).append(point)
    drawn = {is_split: series for is_split, series in found.items() if series}
    if not drawn:
        raise GpuAgentError(f"no run reports stacks of layers; run: gpuagent run {MEMORY_LIMIT} --ratios 3:1,1:1,1:3")
    names = [name for name in cells if any(name in series for series in drawn.values())]
    parts = " △, ▽: the time that GPU 0 and GPU 1 compute." if True in drawn else ""
    points = [point for series in drawn.values() for of_one in series.values() for point in of_one]
    crosses = "" if all(point.stack.fits for point in points) else " ×: out of memory."
    picture = Picture(width_mm=width_mm, note=f"Medians over runs.{crosses}{parts}")
    for index, name in enumerate(names):
        number = sum(len(cell.runs) for cell in cells[name])
        picture.name_line(f"{name} (n = {number})", **line_style(index))
    columns = len(drawn) if picture.is_wide else 1
    panels = picture.panels([_STACKS_MM[picture.is_wide]] * (2 * len(drawn) // columns), columns=columns)
    for number, (is_split, series) in enumerate(drawn.items()):
        first = number if columns > 1 else 2 * number
        _draw(panels[first], panels[first + columns], series, names)
        panels[first + columns].set_xlabel(_SHARES[is_split])
    return picture


def _stacks(ask: Ask, cells: Sequence[Cell]) -> Iterator[_Stacked]:
    """Yield the stacks with their parts, which follow them; those of single GPUs within a split are no points."""
    for cell in cells:
        stacks = load_stacks(ask, [run.run_id for run in cell.runs])
        starts = [number for number, stack in enumerate(stacks) if stack.gpu is None]
        for first, end in pairwise([*starts, len(stacks)]):
            stack = stacks[first]
            if stack.conv + stack.fc and not stack.name.startswith("gpu"):
                yield _Stacked(stack=stack, parts=tuple(stacks[first + 1 : end]))


def _draw(upper: Axes, lower: Axes, series: Mapping[str, Sequence[_Stacked]], names: Sequence[str]) -> None:
    for name, points in series.items():
        index = names.index(name)
        timed = [(point.percent, _milliseconds(point.stack)) for point in points if point.stack.step_seconds]
        if timed:
            upper.plot(*zip(*timed, strict=True), **line_style(index))
        for point in points:
            for part in (part for part in point.parts if part.step_seconds):
                mark = _PARTS[(part.gpu or 0) % len(_PARTS)]
                upper.plot(point.percent, _milliseconds(part), marker=mark, color=color(index), mfc="none")
        fitting = [(point.percent, point.layers) for point in points if point.stack.fits]
        if fitting:
            lower.plot(*zip(*fitting, strict=True), **line_style(index))
        for point in (point for point in points if not point.stack.fits):
            lower.plot(point.percent, point.layers, marker="x", color=color(index), ms=6, mew=1.4)
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
