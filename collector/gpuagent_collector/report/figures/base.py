"""Parts that all charts share.

Colours are names of the page's custom properties (`--side-0`). The page's script puts in their values, for they follow
what the reader prefers, and paper. plotly takes a few tags and entities in any text, so whatever comes from the store
goes through `safe`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from gpuagent_common.text import harmless

# A trace, an axis, a shape or a layout, as plotly's documentation describes them.
Data = dict[str, Any]

# So many colours there are for sides.
SIDES = 7

_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A chart.

    Attributes:
        title: what it shows, with the unit.
        description: what can be seen, for those who cannot see it.
        data: plotly's traces.
        layout: what differs from the layout of all charts.
        height: pixels.
        linked: whether it shares its horizontal axis with the other linked ones: who zooms one zooms all.
    """

    title: str
    description: str
    data: Sequence[Data]
    layout: Mapping[str, Any]
    height: int = 240
    linked: bool = False

    def as_plotly(self) -> Data:
        """Return data and layout as plotly takes them."""
        return {"data": list(self.data), "layout": _merge(_LAYOUT, self.layout)}


def safe(text: str) -> str:
    """Return text that plotly shows as it is."""
    return escape(harmless(text), quote=False)


def color(side: int) -> str:
    """Return the colour of a side, by its position."""
    return f"--side-{side % SIDES}"


def pale(side: int) -> str:
    """Return the same colour for areas behind lines."""
    return f"--side-{side % SIDES}-pale"


def dash(side: int) -> str:
    """Return the pattern of a side's lines, which differ without colours as well."""
    return _DASHES[side % len(_DASHES)]


def symbol(side: int) -> str:
    """Return the shape of a side's points."""
    return _SYMBOLS[side % len(_SYMBOLS)]


def short(number: float) -> float:
    """Return a number with as many digits as can be seen: the page holds many thousands of them."""
    return float(f"{number:.4g}")


def draw_line(index: int, xs: Iterable[Any], ys: Iterable[Any], *, width: float = 2, **more: Any) -> Data:
    """Return a side's line."""
    line = {"color": color(index), "dash": dash(index), "width": width}
    return {"type": "scatter", "mode": "lines", "x": list(xs), "y": list(ys), "line": line, **more}


def draw_dots(
    index: int, xs: Iterable[Any], ys: Iterable[Any], size: int, marker: Mapping[str, Any] | None = None, **more: Any
) -> Data:
    """Return a side's points; `marker` is beside their colour, shape and size."""
    look = {"color": color(index), "symbol": symbol(index), "size": size, **(marker or {})}
    return {"type": "scatter", "mode": "markers", "x": list(xs), "y": list(ys), "marker": look, **more}


def draw_curve(
    index: int, name: str, points: Sequence[tuple[float, float, float, float]], hover: Sequence[str]
) -> Data:
    """Return a side's line through points: across, upwards, and how far the interval reaches up and down."""
    xs, ys, up, down = zip(*points, strict=True) if points else ((), (), (), ())
    error = {"type": "data", "array": list(up), "arrayminus": list(down), "color": color(index)}
    look = draw_dots(index, xs, [short(y) for y in ys], 9, name=safe(name), error_y=error)
    line = draw_line(index, (), ())["line"]
    return {**look, "mode": "lines+markers", "line": line, "hovertext": list(hover), "hoverinfo": "text"}


def _merge(base: Mapping[str, Any], own: Mapping[str, Any]) -> Data:
    merged = dict(base)
    for name, value in own.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = _merge(merged[name], value) if both else value
    return merged


_AXIS: Data = {
    "gridcolor": "--line",
    "linecolor": "--quiet",
    "zerolinecolor": "--line",
    "tickcolor": "--quiet",
    "automargin": True,
    "title": {"standoff": 8, "font": {"size": 12}},
}

_LAYOUT: Data = {
    "font": {"color": "--text", "family": "system-ui, sans-serif", "size": 12},
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
    "margin": {"l": 48, "r": 14, "t": 10, "b": 36},
    "hoverlabel": {"bgcolor": "--back", "bordercolor": "--quiet", "font": {"color": "--text"}, "namelength": 40},
    "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
    "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "--quiet", "activecolor": "--text"},
    "xaxis": _AXIS,
    "yaxis": _AXIS,
}
