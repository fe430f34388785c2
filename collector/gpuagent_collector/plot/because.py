"""Waterfalls: the parts from one side to another, a panel for each two sides that differ."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from gpuagent_collector.compare.because import Because, waterfall
from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.plot.picture import QUIET, Picture, characters, color, shorten_names
from gpuagent_collector.runs.cells import tell_apart
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.text import harmless

_BAR_MM = 5.0
_MOST_PANELS = 24


def draw_because(comparison: Comparison, width_mm: float) -> Picture:
    """Return the parts of each shown difference.

    Raises:
        GpuAgentError: no difference is shown of which the parts are known.
    """
    reasons = comparison.reasons[:_MOST_PANELS]
    if not reasons:
        raise GpuAgentError(
            "no parts to draw: no difference is shown whose parts are known; `collector compare` says what is"
        )
    counts = sorted(
        {len(because.block.cell(side).runs) for because in reasons for side in (because.baseline, because.side)}
    )
    runs = f"n = {counts[0]}" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]} runs"
    sums = "each part begins where the one before it ends, and they sum to the difference"
    picture = Picture(width_mm=width_mm, note=f"Medians of runs; {sums}. {runs}.")
    panels = picture.panels([_BAR_MM * (len(because.parts) + 2) for because in reasons])
    for axes, because in zip(panels, reasons, strict=True):
        name = tell_apart(because.block, comparison.layout.blocks)
        axes.set_title(harmless(f"{name}: per {because.of}"))
        _draw(axes, because, comparison.layout.sides, characters(width_mm / 3, picture.size))
    return picture


def _draw(axes: Axes, because: Because, sides: Sequence[str], most: int) -> None:
    unit, bars = waterfall(because)
    for place, bar in enumerate(bars):
        shade = color(sides.index(bar.title)) if bar.is_whole else QUIET
        axes.barh(place, bar.end - bar.begin, left=bar.begin, color=shade, height=0.7)
        beside = (max(bar.begin, bar.end), place)
        axes.annotate(bar.text, beside, (3, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(bars)), shorten_names([bar.title for bar in bars], most))
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.margins(x=0.16)
    axes.set_xlim(left=0)
    axes.grid(axis="x")
