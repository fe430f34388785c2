"""Panels for print: those that the report has too, with a legend and a note for all."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from gpuagent_collector.plot.picture import QUIET, Picture, characters, color, line_style, marker, shorten_names
from gpuagent_collector.present.panel import Axis, Look, Panel, Place, Series
from gpuagent_common.text import harmless

# Millimetres of a pixel of the page, where a figure spans two columns or one.
_MM_PER_PIXEL = {True: 0.18, False: 0.15}
_STYLES: dict[Look, dict[str, Any]] = {
    Look.POINTS: {"ls": "none", "ms": 5},
    Look.SMALL: {"ls": "none", "ms": 2.5, "alpha": 0.55, "mew": 0},
    Look.LARGE: {"ls": "none", "ms": 6, "mec": "white", "mew": 0.6, "zorder": 3},
    Look.SOLID: {"ls": "-", "lw": 1.0, "zorder": 1},
    Look.BROKEN: {"ls": (0, (4, 2)), "lw": 0.9, "zorder": 1},
    Look.DOTTED: {"ls": (0, (1, 1.5)), "lw": 1.0, "zorder": 1},
}
_ALIGNED = {Place.LEFT: (-2, "right"), Place.CENTER: (0, "center"), Place.RIGHT: (3, "left")}


def draw_panels(panels: Sequence[Panel], note: str, width_mm: float, *, columns: int = 1) -> Picture:
    """Return the panels in as many columns as are wished for, in a narrow figure in one, and a legend of all series.

    Raises:
        GpuAgentError: the figure would be too large to draw.
    """
    picture = Picture(width_mm=width_mm, note=note)
    named = {series.name: series for panel in panels for series in reversed(panel.series) if series.name}
    for name, series in sorted(named.items(), key=lambda each: (each[1].index is None, each[1].index)):
        picture.name_line(name, **_style(series))
    columns = columns if picture.is_wide else 1
    heights = [panel.height * _MM_PER_PIXEL[picture.is_wide] for panel in panels]
    axes = picture.grid(len(panels), max(heights), columns) if columns > 1 else picture.panels(heights)
    for one, panel in zip(axes, panels, strict=True):
        one.set_title(harmless(panel.title))
        for series in panel.series:
            _draw_series(one, series)
        _set_axis(one, "x", panel.x)
        if panel.bars:
            for place, bar in enumerate(panel.bars):
                shade, end = QUIET if bar.index is None else color(bar.index), max(bar.begin, bar.end)
                one.barh(place, bar.end - bar.begin, left=bar.begin, color=shade, height=0.7)
                one.annotate(bar.text, (end, place), (3, 0), textcoords="offset points", va="center")
            names = shorten_names([bar.name for bar in panel.bars], characters(width_mm / 3, picture.size))
            one.set_yticks(range(len(names)), names)
            one.invert_yaxis()
        else:
            _set_axis(one, "y", panel.y)
            one.minorticks_off()
        one.grid(axis="x" if panel.bars else "both")
    return picture


def _style(series: Series) -> dict[str, Any]:
    index, look = series.index, series.look
    if index is None:
        return {"color": "black" if look is Look.SOLID else QUIET, **_STYLES[look]}
    if look is Look.CURVE:
        return line_style(index)
    shape = {} if look is Look.DOTTED else {"marker": marker(index)}
    return {"color": color(index), **shape, **_STYLES[look]}


def _draw_series(axes: Axes, series: Series) -> None:
    if series.look is not Look.NOTHING:
        axes.plot(series.xs, series.ys, **_style(series))
    if series.up:
        ends = [series.down, series.up]
        axes.errorbar(series.xs, series.ys, yerr=ends, fmt="none", ecolor=color(series.index or 0), elinewidth=0.9)
    across, aligned = _ALIGNED[series.place]
    shade = "black" if series.place is Place.CENTER else QUIET
    words: dict[str, Any] = {"textcoords": "offset points", "ha": aligned, "va": "bottom", "color": shade}
    for x, y, text in zip(series.xs, series.ys, series.labels, strict=False):
        axes.annotate(harmless(text), (x, y), (across, 3), **words)


def _set_axis(axes: Axes, which: str, axis: Axis) -> None:
    own = getattr(axes, f"{which}axis")
    axes.set(**{f"{which}label": harmless(axis.label), f"{which}scale": "log" if axis.is_logarithmic else "linear"})
    if axis.ticks:
        own.set_ticks(axis.ticks, axis.names)
    if axis.ends:
        axes.set(**{f"{which}lim": axis.ends})
