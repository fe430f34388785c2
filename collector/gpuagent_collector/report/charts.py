"""A chart's place in the page: where the script draws it, and the data that it draws."""

import json
from collections.abc import Iterable
from math import isfinite

from gpuagent_collector.output.html import element, escaped
from gpuagent_collector.report.figures.base import Figure

_MEANINGFUL = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def chart(figure: Figure) -> str:
    """Return a chart with its title; its data stands beside it, where no browser takes it for anything else."""
    place = element(
        "div",
        class_="chart",
        role="group",
        aria_roledescription="chart",
        aria_label=f"{figure.title}. {figure.description}",
        style=f"height:{figure.height}px",
        data_linked="" if figure.linked else None,
    )
    data = f'<script type="application/json">{_inert(figure.as_plotly())}</script>'
    return element("figure", element("figcaption", escaped(figure.title)), place, data)


def charts(figures: Iterable[Figure]) -> str:
    """Return charts beside one another, as far as there is room; nothing for none."""
    drawn = [*map(chart, figures)]
    return element("div", *drawn, class_="charts") if drawn else ""


def _inert(data: object) -> str:
    """Return JSON that means nothing to an HTML parser."""
    return json.dumps(_finite(data), separators=(",", ":"), ensure_ascii=False, allow_nan=False).translate(_MEANINGFUL)


def _finite(data: object) -> object:
    """Return data without numbers that are none: workloads may report such, and JSON has no word for them."""
    match data:
        case dict():
            return {name: _finite(each) for name, each in data.items()}
        case list() | tuple():
            return [_finite(each) for each in data]
        case float() if not isfinite(data):
            return None
    return data
