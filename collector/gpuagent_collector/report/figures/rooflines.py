"""A roofline: both axes logarithmic, measured roofs drawn through, stated ones broken, points as letters."""

from collections.abc import Iterator, Sequence
from math import log10

from gpuagent_collector.answers.roofline_points import Point, Roofline, Roofs, Traffic
from gpuagent_collector.present.human import in_unit, significant
from gpuagent_collector.report.figures.base import Data, Figure, draw_dots, draw_line, safe, short
from gpuagent_common.text import counted

_MARGIN = 10**0.4
_LEAST_SPAN = 10**2


def roofline_figure(roofline: Roofline, sides: Sequence[str]) -> Figure | None:
    """Return the points below the roofs of a device; None: no roof or no point can be drawn."""
    if not roofline.is_drawn:
        return None
    points = [point for point in roofline.points if point.intensity is not None]
    xs, ys = zip(*roofline.corners, strict=True)
    intensities = [*xs, *(point.intensity or 0.0 for point in points)]
    rates = [*ys, *(point.flops_per_second for point in points)]
    left, right = limits(intensities)
    sources = (("measured", roofline.measured, "solid"), ("datasheet", roofline.datasheet, "dot"))
    roofs = [trace for name, known, dash in sources for trace in _roofs(name, known, roofline, left, right, dash)]
    layout = {
        "hovermode": "closest",
        "xaxis": _axis("FLOP/byte", (left, right)),
        "yaxis": {**_axis("FLOP/s", limits(rates)), "exponentformat": "SI"},
        "annotations": list(_peaks(roofline, right)),
    }
    description = "; ".join(f"{point.mark}: {_hover(point)}" for point in points)
    return Figure(
        title=f"FLOP/s by FLOP/byte, {roofline.device}",
        description=description,
        data=[*roofs, *(_point(point, sides) for point in points)],
        layout=layout,
        height=420,
    )


def limits(values: list[float]) -> tuple[float, float]:
    """Return the ends of a logarithmic axis that shows all values, with a margin."""
    low, high = min(values) / _MARGIN, max(values) * _MARGIN
    spread = max(1.0, (_LEAST_SPAN / (high / low)) ** 0.5)
    return low / spread, high * spread


def _axis(title: str, limits: tuple[float, float]) -> Data:
    return {"type": "log", "title": {"text": title}, "range": [log10(end) for end in limits], "dtick": "D2"}


def _roofs(name: str, roofs: Roofs, roofline: Roofline, left: float, right: float, dash: str) -> Iterator[Data]:
    for number, line in enumerate(roofline.lines(roofs, left, right)):
        xs, ys = zip(*line, strict=True)
        look = {"color": "--text" if dash == "solid" else "--quiet", "dash": dash, "width": 1.6}
        group = {"name": f"{name} roofs", "legendgroup": name, "showlegend": number == 0}
        yield {**draw_line(0, xs, ys), **group, "line": look, "hoverinfo": "skip"}


def _peaks(roofline: Roofline, right: float) -> Iterator[Data]:
    """Yield the name of each arithmetic below its peak, the measured one where there is one."""
    for name, peak in roofline.peaks.items():
        place = {"x": log10(right), "y": log10(peak), "xanchor": "right", "yanchor": "top"}
        text = f"{name.upper()} {in_unit('FLOP/s')(peak)}"
        yield {**place, "text": text, "showarrow": False, "font": {"color": "--quiet"}}


def _point(point: Point, sides: Sequence[str]) -> Data:
    index = sides.index(point.run.side or "")
    at_most = point.traffic_by is Traffic.LEAST
    drawn = draw_dots(index, [short(point.intensity or 0.0)], [short(point.flops_per_second)], 10)
    return {
        **drawn,
        "mode": "markers+text",
        "name": f"{point.mark} {safe(point.label)}",
        "text": [f"← {point.mark}" if at_most else point.mark],
        "textposition": "middle left" if at_most else "top center",
        "textfont": {"size": 13, "color": "--text"},
        "hovertext": [safe(_hover(point))],
        "hoverinfo": "text",
    }


def _hover(point: Point) -> str:
    most = "at most " if point.traffic_by is Traffic.LEAST else ""
    at = "" if point.intensity is None else f" at {most}{significant(point.intensity)} FLOP/byte"
    return f"{point.label}: {in_unit('FLOP/s')(point.flops_per_second)}{at}, {counted(len(point.trials), 'run')}"
