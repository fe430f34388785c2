"""Time against energy or money: each run, the medians of sides, and the line of those that nothing dominates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from matplotlib.axes import Axes

from gpuagent_collector.compare.matrix import Selection, label_row
from gpuagent_collector.plot.picture import QUIET, Picture, color, marker, write_counts
from gpuagent_collector.present.human import notation
from gpuagent_collector.recommend.ranking import Criterion, find_criteria, rank
from gpuagent_collector.report.figures.costs import Taken, taken_by
from gpuagent_collector.runs.cells import Block
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.text import harmless

_PANEL_MM = {True: 55.0, False: 50.0}
_MOST_PANELS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class _Panel:
    """Two criteria of a block: what the runs of each side took, and the sides in the Pareto set."""

    title: str
    time: Criterion
    other: Criterion
    taken: Mapping[str, Taken]
    efficient: frozenset[str]


def draw_frontier(chosen: Selection, width_mm: float, *, delta: float) -> Picture:
    """Return a panel for each block and each thing but time that its runs have a figure of.

    Raises:
        GpuAgentError: no run has both a time and something else.
    """
    found = [panel for block in chosen.layout.blocks for panel in _panels(block, chosen, delta)]
    if not found:
        raise GpuAgentError("no frontier to draw: no run has energy or cost; give --prices, or sample the GPUs' power")
    panels = found[:_MOST_PANELS]
    rest = f" The first {len(panels)} of {len(found)} panels." if len(panels) < len(found) else ""
    counts = {len(taken) for panel in panels for taken in panel.taken.values()}
    runs = f"n = {write_counts(counts)}{' runs' if len(counts) > 1 else ''}"
    has_line = any(len(panel.efficient) > 1 for panel in panels)
    line = "The broken line joins sides that no other is shown to beat. " if has_line else ""
    picture = Picture(
        width_mm=width_mm,
        note="Each run is a small mark, the median of a side a large one; down and to the left is better. "
        f"{line}{runs}.{rest}",
    )
    sides = chosen.layout.sides
    for index, side in enumerate(sides):
        if any(side in panel.taken for panel in panels):
            picture.name_line(side, ls="none", marker=marker(index), color=color(index), ms=5.5)
    columns = 2 if picture.is_wide and len(panels) > 1 else 1
    axes = picture.grid(len(panels), _PANEL_MM[picture.is_wide], columns)
    for one, panel in zip(axes, panels, strict=True):
        _draw(one, panel, sides, titled=len(chosen.layout.blocks) > 1)
    return picture


def _panels(block: Block, chosen: Selection, delta: float) -> list[_Panel]:
    criteria = {criterion.name: criterion for criterion in find_criteria(block, chosen.facts)}
    time = criteria.pop("time")
    ranked = rank([block], chosen.facts, {time.name: 1.0}, delta=delta, alpha=0.05 / chosen.layout.looks)
    standings = ranked[0].standings if ranked else ()
    panels = []
    for other in criteria.values():
        taken = {cell.side: found for cell in block.cells if (found := taken_by(cell, time, other, chosen.facts))}
        efficient = frozenset(standing.side for standing in standings if standing.is_efficient) & taken.keys()
        if taken:
            title = label_row(block, chosen.layout)
            panels.append(_Panel(title=title, time=time, other=other, taken=taken, efficient=efficient))
    return panels


def _draw(axes: Axes, panel: _Panel, sides: Sequence[str], *, titled: bool) -> None:
    xs = [x for taken in panel.taken.values() for _, x, _ in taken]
    ys = [y for taken in panel.taken.values() for _, _, y in taken]
    x_scale, y_scale = notation(xs, panel.time.unit), notation(ys, panel.other.unit)
    middles = {}
    for side, taken in panel.taken.items():
        index = sides.index(side)
        style: dict[str, Any] = {"ls": "none", "marker": marker(index), "color": color(index)}
        own_x, own_y = [x / x_scale.divisor for _, x, _ in taken], [y / y_scale.divisor for _, _, y in taken]
        middles[side] = (median(own_x), median(own_y))
        axes.plot(own_x, own_y, ms=2.5, alpha=0.55, mew=0, **style)
        axes.plot(*middles[side], ms=6, mec="white", mew=0.6, zorder=3, **style)
    line = sorted(middles[side] for side in panel.efficient)
    if len(line) > 1:
        axes.plot(*zip(*line, strict=True), color=QUIET, ls=(0, (4, 2)), lw=0.9, zorder=1)
    axes.set_xlim(0, max(xs) / x_scale.divisor * 1.12)
    axes.set_ylim(0, max(ys) / y_scale.divisor * 1.12)
    axes.set_xlabel(f"{panel.time.what} per {panel.time.per} ({x_scale.symbol})")
    axes.set_ylabel(f"{panel.other.what} per {panel.other.per} ({y_scale.symbol})")
    if titled:
        axes.set_title(harmless(panel.title))
    axes.grid()
