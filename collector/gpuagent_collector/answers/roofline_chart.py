"""The chart of a roofline in a terminal: both axes logarithmic, points as letters."""

from collections.abc import Iterable
from math import ceil, floor, log10
from typing import Any

from gpuagent_collector.answers.roofline_points import Roofline, merge_marks
from gpuagent_collector.present.human import in_unit, significant

# Wider charts are no easier to read.
_WIDEST_COLUMNS, _HEIGHT_ROWS = 120, 20
_MEASURED, _STATED = "braille", "·"
_MARGIN_DECADES = 0.25


def draw_roofline(roofline: Roofline, width: int) -> list[str]:
    """Return a chart of at most `width` columns, lines of text with ANSI colours; nothing where there is none."""
    if not roofline.is_drawn:
        return []
    import plotext  # a fifth of what a report imports, which draws its own charts

    width = min(width, _WIDEST_COLUMNS)
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(width, _HEIGHT_ROWS)
    points = [point for point in roofline.points if point.intensity is not None]
    xs, ys = zip(*roofline.corners, strict=True)
    left, right = _set_axis(figure.ruler("x"), "x", [*xs, *(point.intensity or 1 for point in points)])
    low, high = _set_axis(figure.ruler("y"), "y", [*ys, *(point.flops_per_second for point in points)])
    for roofs, marker, color in ((roofline.datasheet, _STATED, "gray"), (roofline.measured, _MEASURED, "cyan")):
        for line in roofline.lines(roofs, 10**left, 10**right):
            ends = [[log10(value) for value in values] for values in zip(*line, strict=True)]
            figure.draw(figure.segment(*ends, marker=plotext.marker(marker, pixel=color)))
    # The name of each arithmetic is on its peak.
    for name, peak in roofline.peaks.items():
        figure.draw(figure.text(right, log10(peak), f" {name.upper()} ", alignment="right"))
    for x, y, text in merge_marks(points, 2 * (right - left) / width, (high - low) / _HEIGHT_ROWS):
        figure.draw(figure.text(log10(x), log10(y), text, alignment="right"))
    figure.title("FLOP/s by FLOP/byte")
    return [str(figure.build())]


def _set_axis(ruler: Any, axis: str, values: Iterable[float]) -> tuple[float, float]:
    """Set a logarithmic axis a bit wider than the values, with a tick at each decade; return its ends' logarithms."""
    logarithms = [log10(value) for value in values]
    low, high = min(logarithms) - _MARGIN_DECADES, max(logarithms) + _MARGIN_DECADES
    if high - low < 2:
        middle = (low + high) / 2
        low, high = middle - 1, middle + 1
    ruler.lim(low, high)
    decades = range(ceil(low), floor(high) + 1)
    ruler.ticks(list(decades), [_tick(axis, 10.0**decade) for decade in decades])
    return low, high


def _tick(axis: str, value: float) -> str:
    if axis == "y":
        return in_unit("FLOP/s")(value)
    return significant(value) if value >= 1 else f"{value:g}"
