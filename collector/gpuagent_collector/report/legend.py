"""Which line is which side, once for many charts."""

from collections.abc import Mapping, Sequence

from gpuagent_collector.output.html import element, escaped
from gpuagent_collector.report.figures.base import SIDES, dash

# plotly's names of broken lines → what SVG calls them.
_PATTERNS = {
    "solid": None,
    "dash": "7 5",
    "dot": "2 4",
    "dashdot": "8 4 2 4",
    "longdash": "12 6",
    "longdashdot": "12 5 2 5",
}


def legend(names: Mapping[str, str], sides: Sequence[str]) -> str:
    """Return the colour and line of each side with its name."""
    items = (element("li", _sample(sides.index(side)), element("span", escaped(name))) for side, name in names.items())
    return element("ul", *items, class_="legend")


def _sample(index: int) -> str:
    line = element("path", d="M0 6H34", class_=f"side-{index % SIDES}", stroke_dasharray=_PATTERNS[dash(index)])
    return element("svg", line, viewBox="0 0 34 12", width="34", height="12", aria_hidden="true")
