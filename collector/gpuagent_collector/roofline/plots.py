"""A roofline drawn with the terminal's characters, both axes logarithmic. Points are letters; colours only help."""

from collections.abc import Iterable, Iterator, Sequence
from math import ceil, floor, log10

import plotext

from gpuagent_collector.output.human import notation, significant
from gpuagent_collector.roofline.names import marked, used_arithmetics
from gpuagent_collector.roofline.points import Traffic
from gpuagent_collector.roofline.roofs import Roofs
from gpuagent_collector.roofline.study import Roofline

LEGEND = "━ measured roofs  · datasheet  a point  ←a at most so far right (bytes ≥ …)"

_HEIGHT_ROWS = 20
_MEASURED, _STATED = "braille", "·"
_MARGIN_DECADES = 0.25

# Logarithms of FLOP/byte and of FLOP/s, the letter, and the source of the bytes.
Mark = tuple[float, float, str, Traffic | None]

# Points (FLOP/byte, FLOP/s) that are joined.
Line = Sequence[tuple[float, float]]


def ridges(roofs: Roofs, roofline: Roofline) -> list[tuple[float, float]]:
    """Return the points where each arithmetic's roof meets the memory's: (FLOP/byte, FLOP/s)."""
    if roofs.bytes_per_second is None:
        return []
    peaks = [roofs.flops_per_second[name] for name in used_arithmetics(roofline) if name in roofs.flops_per_second]
    return [(peak / roofs.bytes_per_second, peak) for peak in peaks]


def lines(roofs: Roofs, roofline: Roofline, left: float, right: float) -> Iterable[Line]:
    """Yield the memory's roof up to the highest ridge, and the peak from each ridge on."""
    corners = ridges(roofs, roofline)
    if not corners or roofs.bytes_per_second is None:
        return
    yield [(left, left * roofs.bytes_per_second), max(corners)]
    for intensity, peak in corners:
        yield [(intensity, peak), (right, peak)]


def draw_roofline(roofline: Roofline, width: int) -> str | None:
    """Return lines of text with ANSI colours, `width` columns wide; None: there is no roof or no point to draw."""
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
            xs, ys = zip(*[(log10(x), log10(y)) for x, y in line], strict=True)
            figure.draw(figure.segment(list(xs), list(ys), marker=plotext.marker(marker, pixel=color)))
    # The name of each arithmetic on its peak, the measured one where there is one.
    peaks = {**roofline.datasheet.flops_per_second, **roofline.measured.flops_per_second}
    for name in used_arithmetics(roofline):
        if name in peaks:
            figure.draw(figure.text(right, log10(peaks[name]), f" {name.upper()} ", alignment="right"))
    for x, y, text in _merge_marks(points, (right - left) / width, (high - low) / _HEIGHT_ROWS):
        figure.draw(figure.text(x, y, text, alignment="right"))
    figure.title("FLOP/s by FLOP/byte")
    return str(figure.build())


def _merge_marks(points: Iterable[Mark], column: float, row: float) -> Iterator[tuple[float, float, str]]:
    """Yield the marks and their places; points that would hide one another share a mark."""
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


def _limits(axis: str, values: Sequence[float]) -> tuple[float, float]:
    """Set an axis a bit wider than the values, which are logarithms, with a tick at each decade; return its ends."""
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
