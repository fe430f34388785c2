"""A roofline drawn with the terminal's characters, both axes logarithmic. Points are letters, so colours only help."""

from collections.abc import Iterable, Iterator, Sequence
from math import ceil, floor, log10

import plotext

from gpuagent_collector.output.human import notation, significant
from gpuagent_collector.roofline.names import marked, used_arithmetics
from gpuagent_collector.roofline.outline import Line, lines, ridges
from gpuagent_collector.roofline.points import Traffic
from gpuagent_collector.roofline.study import Roofline

LEGEND = "━ measured roofs  · datasheet  a point  ←a at most so far right (bytes ≥ …)"

_HEIGHT_ROWS = 20
_MEASURED, _STATED = "braille", "·"
_MARGIN_DECADES = 0.25

# Logarithms of FLOP/byte and of FLOP/s, the letter, and how the bytes were got.
Mark = tuple[float, float, str, Traffic | None]


def draw_roofline(roofline: Roofline, width: int) -> str | None:
    """Return lines of text with ANSI colours, `width` columns wide; None: no roof or no point can be drawn."""
    points = [
        (log10(placed.point.intensity), log10(placed.point.flops_per_second), mark, placed.point.traffic_by)
        for mark, placed in marked(roofline)
        if placed.point.intensity is not None
    ]
    corners = [*ridges(roofline.measured, roofline), *ridges(roofline.datasheet, roofline)]
    if not points or not corners:
        return None
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(width, _HEIGHT_ROWS)
    left, right = _limits("x", [*(x for x, *_ in points), *(log10(x) for x, _ in corners)])
    low, high = _limits("y", [*(y for _, y, *_ in points), *(log10(y) for _, y in corners)])
    for roofs, marker, color in ((roofline.datasheet, _STATED, "gray"), (roofline.measured, _MEASURED, "cyan")):
        for line in lines(roofs, roofline, 10**left, 10**right):
            _draw_line(line, plotext.marker(marker, pixel=color))
    _name_peaks(roofline, right)
    for x, y, text in _joined(points, (right - left) / width, (high - low) / _HEIGHT_ROWS):
        figure.draw(figure.text(x, y, text, alignment="right"))
    figure.title("FLOP/s by FLOP/byte")
    return str(figure.build())


def _joined(points: Iterable[Mark], column: float, row: float) -> Iterator[tuple[float, float, str]]:
    """Yield where marks stand and what they are; points that would hide one another share a mark."""
    groups: list[list[Mark]] = []
    for point in points:
        near = (each for each in groups if abs(each[0][0] - point[0]) < 2 * column and abs(each[0][1] - point[1]) < row)
        group = next(near, None)
        if group is None:
            groups.append([point])
        else:
            group.append(point)
    for members in groups:
        x, y, *_ = members[0]
        arrow = "←" if any(by is Traffic.LEAST for *_, by in members) else ""
        yield x, y, arrow + "".join(mark for _, _, mark, _ in members)


def _draw_line(line: Line, marker: object) -> None:
    xs, ys = zip(*[(log10(x), log10(y)) for x, y in line], strict=True)
    plotext.figure.draw(plotext.figure.segment(list(xs), list(ys), marker=marker))


def _name_peaks(roofline: Roofline, right: float) -> None:
    """Write the name of each arithmetic on its peak, the measured one where there is one."""
    peaks = {**roofline.datasheet.flops_per_second, **roofline.measured.flops_per_second}
    figure = plotext.figure
    for name in used_arithmetics(roofline):
        if name in peaks:
            figure.draw(figure.text(right, log10(peaks[name]), f" {name.upper()} ", alignment="right"))


def _limits(axis: str, values: Sequence[float]) -> tuple[float, float]:
    """Let the axis reach a bit beyond the values, which are logarithms, with a tick at each decade; return its ends."""
    low, high = min(values) - _MARGIN_DECADES, max(values) + _MARGIN_DECADES
    if high - low < 2:
        middle = (low + high) / 2
        low, high = middle - 1, middle + 1
    ruler = plotext.figure.ruler(axis)
    ruler.lim(low, high)
    decades = range(ceil(low), floor(high) + 1)
    ruler.ticks(list(decades), [_tick(axis, 10.0**decade) for decade in decades])
    return low, high


def _tick(axis: str, value: float) -> str:
    if axis == "y":
        return notation([value], "FLOP/s").write(value)
    return significant(value) if value >= 1 else f"{value:g}"
