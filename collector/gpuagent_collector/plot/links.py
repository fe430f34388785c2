"""Bus bandwidth of the operations of `collectives` by the size of their messages, one panel for each operation."""

from collections.abc import Sequence
from statistics import median

from gpuagent_collector.answers.show import Point, load_points
from gpuagent_collector.compare.matrix import Selection
from gpuagent_collector.plot.picture import Picture, line_style
from gpuagent_collector.present.human import notation
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.reported import size_text
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.text import harmless

WORKLOAD = "collectives"

_PANEL_MM = 42.0
_COLUMNS = 2
# Labels of sizes that fit side by side.
_MOST_TICKS = 6


def draw_links(ask: Ask, chosen: Selection, width_mm: float) -> Picture:
    """Return a curve for each side, and for each number of ranks within it, in a panel for each operation.

    Raises:
        GpuAgentError: no run reports operations by size.
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
        raise GpuAgentError(f"no run reports collectives by size; run: gpuagent run {WORKLOAD}")
    picture = Picture(width_mm=width_mm, note="Medians over runs. Bus bandwidth as nccl-tests defines it.")
    for index, (side, ranks) in enumerate(curves):
        name = f"{side}, {ranks} ranks" if ranks else side
        picture.name_line(f"{name} (n = {runs[side, ranks]})", **line_style(index))
    operations = list(dict.fromkeys(point.operation for points in curves.values() for point in points))
    columns = _COLUMNS if picture.is_wide and len(operations) > 1 else 1
    panels = picture.grid(len(operations), _PANEL_MM, columns)
    scale = notation([median(point.bus_bytes_per_second) for points in curves.values() for point in points], "bytes/s")
    for axes, operation in zip(panels, operations, strict=True):
        sizes: set[int] = set()
        for index, points in enumerate(curves.values()):
            own = [point for point in points if point.operation == operation]
            sizes |= {point.size_bytes for point in own}
            rates = [median(point.bus_bytes_per_second) / scale.divisor for point in own]
            axes.plot([point.size_bytes for point in own], rates, **line_style(index))
        axes.set(xscale="log", ylabel=f"bus bandwidth ({scale.symbol})", title=harmless(operation))
        ticks = _choose_ticks(sorted(sizes))
        axes.set_xticks(ticks, [size_text(size) for size in ticks])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.grid()
    return picture


def _choose_ticks(sizes: Sequence[int]) -> list[int]:
    """Return the sizes to label: every one, or every second, third, …, and the last."""
    step = -(-len(sizes) // _MOST_TICKS)
    return list(sizes[::-1][::step][::-1])
