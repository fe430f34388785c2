"""Parts that all charts share.

Colours are names of the page's custom properties (`--side-0`). The page's script puts in their values, for they follow
what the reader prefers, and paper. plotly takes a few tags and entities in any text, so whatever comes from the store
goes through `safe`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import log10
from textwrap import wrap
from typing import Any

from gpuagent_collector.present.panel import COLORS, LINES, Axis, Look, Panel, Place, Row, Series
from gpuagent_common.text import harmless

# Of the name of a bar, in a line: on a telephone half of the width is for the bars.
_NAME_CHARACTERS = 22

# A trace, an axis, a shape or a layout, as plotly's documentation describes them.
Data = dict[str, Any]

_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_SYMBOLS = (
    *("circle", "square", "diamond", "triangle-up", "cross", "x", "star"),
    *("triangle-down", "pentagon", "bowtie", "hexagram"),
)


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


def fold(text: str, most: int) -> str:
    """Return text for a label, in lines of at most so many characters: plotly leaves out labels that it has to turn."""
    return "<br>".join(map(safe, wrap(text, most, break_on_hyphens=False))) or safe(text)


def color(side: int) -> str:
    """Return the colour of a side, by its position."""
    return f"--side-{side % COLORS}"


def pale(side: int) -> str:
    """Return the same colour for areas behind lines."""
    return f"--side-{side % COLORS}-pale"


def dash(side: int) -> str:
    """Return the pattern of a side's lines, which differ without colours as well."""
    return _DASHES[(side + side // COLORS) % len(_DASHES)]


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


# Of marks in pixels, lines as plotly names them, and labels by their place.
_SIZES = {Look.CURVE: 9, Look.POINTS: 10, Look.SMALL: 6, Look.LARGE: 14, Look.NOTHING: 10}
_LINES = {Look.SOLID: "solid", Look.BROKEN: "dash", Look.DOTTED: "dot"}
_PLACES = {Place.LEFT: "top left", Place.CENTER: "top center", Place.RIGHT: "top right"}


# Of the parts of stacks, which differ without colours as well.
_HATCHES = ("", "/", ".", "x", "\\", "|", "-", "+")

# In pixels: the axis below bars, and a line of a label with a part of the gap to the next label.
_AXIS_HEIGHT, _LINE_HEIGHT = 60, 20


def draw_panel(panel: Panel) -> Figure:
    """Return a panel as plotly draws it."""
    layout: Data = {"hovermode": "closest", "xaxis": _draw_axis(panel.x), "yaxis": _draw_axis(panel.y)}
    data = [_draw_series(series) for series in panel.series]
    height = panel.height
    if panel.rows:
        data = list(_draw_rows(panel.rows))
        # Beside a bar its figure has no room on a telephone.
        names = [f"{fold(row.name, _NAME_CHARACTERS)}<br>{safe(row.text)}" for row in panel.rows]
        places = {"tickvals": list(range(len(names))), "ticktext": names}
        layout["barmode"] = "overlay"
        layout["yaxis"] = {"autorange": "reversed", "showgrid": False, **places}
        lines = 1 + max(name.count("<br>") for name in names)
        height = max(height, _AXIS_HEIGHT + _LINE_HEIGHT * lines * len(names))
    return Figure(title=panel.title, description=panel.description, data=data, layout=layout, height=height)


def _draw_axis(axis: Axis) -> Data:
    drawn: Data = {"title": {"text": safe(axis.label)}}
    if axis.is_logarithmic:
        drawn["type"] = "log"
    if axis.ends:
        drawn["range"] = [log10(end) for end in axis.ends] if axis.is_logarithmic else list(axis.ends)
    if axis.ticks:
        drawn |= {"tickvals": list(axis.ticks), "ticktext": list(map(safe, axis.names))}
    return drawn


def _draw_series(series: Series) -> Data:
    index, look = series.index, series.look
    # An unseen mark keeps its label off what is drawn in the same place.
    parts = [("lines", look in LINES), ("markers", look in _SIZES), ("text", series.labels)]
    own = "--quiet" if index is None else color(index)
    drawn: Data = {
        "type": "scatter",
        "mode": "+".join(name for name, is_there in parts if is_there),
        "name": safe(series.name),
        "showlegend": bool(series.name),
        "x": list(map(short, series.xs)),
        "y": list(map(short, series.ys)),
        "hoverinfo": "skip",
    }
    if look in LINES:
        drawn["line"] = {"color": "--text" if look is Look.SOLID else own, "width": 2 if look is Look.CURVE else 1.6}
        drawn["line"]["dash"] = _LINES[look] if look in _LINES else dash(index or 0)
    if look in _SIZES:
        edge = {"color": "--text", "width": 1.5 if look is Look.LARGE else 0}
        drawn["marker"] = {"color": own, "symbol": symbol(index or 0), "size": _SIZES[look], "line": edge}
        drawn["marker"]["opacity"] = {Look.SMALL: 0.6, Look.NOTHING: 0}.get(look, 1)
    if series.up:
        ends = {"array": list(map(short, series.up)), "arrayminus": list(map(short, series.down))}
        drawn["error_y"] = {"type": "data", "color": own, **ends}
    if series.labels:
        drawn |= {"text": list(map(safe, series.labels)), "textposition": _PLACES[series.place]}
        drawn["textfont"] = {"color": "--text" if series.place is Place.CENTER else "--quiet"}
    if series.hover:
        drawn |= {"hovertext": list(map(safe, series.hover)), "hoverinfo": "text"}
    return drawn


def _draw_rows(rows: Sequence[Row]) -> Iterator[Data]:
    """Yield the bars of each part, or all where they have no names of parts."""
    for part in dict.fromkeys(bar.part for row in rows for bar in row.bars):
        found = [(place, row, bar) for place, row in enumerate(rows) for bar in row.bars if bar.part == part]
        shades = ["--quiet" if bar.index is None else color(bar.index) for _, _, bar in found]
        insides = ["rgba(0,0,0,0)" if bar.is_hollow else shade for (*_, bar), shade in zip(found, shades, strict=True)]
        hatch = _HATCHES[found[0][2].hatch % len(_HATCHES)]
        yield {
            "type": "bar",
            "orientation": "h",
            "name": safe(part),
            "showlegend": bool(part),
            "y": [place for place, *_ in found],
            "base": [short(bar.begin) for *_, bar in found],
            "x": [short(bar.end - bar.begin) for *_, bar in found],
            "marker": {"color": insides, "line": {"color": shades, "width": 1.5}, "pattern": {"shape": hatch}},
            "hovertext": [safe(f"{row.name}: {bar.text or row.text}") for _, row, bar in found],
            "hoverinfo": "text",
        }


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
