"""A roofline: both axes logarithmic, measured roofs drawn through, stated ones broken, points as letters."""

from collections.abc import Iterator, Sequence
from math import log10

from gpuagent_collector.answers.roofline import lines, ridges
from gpuagent_collector.answers.roofline_points import Roofs, Traffic
from gpuagent_collector.answers.roofline_study import Placed, Roofline, Study, label, marked, used_arithmetics
from gpuagent_collector.present.human import notation, significant
from gpuagent_collector.report.figures.base import Data, Figure, color, safe, short, symbol
from gpuagent_common.text import counted

_MARGIN = 10**0.4
_LEAST_SPAN = 10**2


def roofline_figure(roofline: Roofline, study: Study, sides: Sequence[str]) -> Figure | None:
    """Return the points below the roofs of a device; None: no roof or no point can be drawn."""
    points = [(mark, placed) for mark, placed in marked(roofline) if placed.point.intensity is not None]
    corners = [*ridges(roofline.measured, roofline), *ridges(roofline.datasheet, roofline)]
    if not points or not corners:
        return None
    intensities = [*(placed.point.intensity or 0.0 for _, placed in points), *(x for x, _ in corners)]
    rates = [*(placed.point.flops_per_second for _, placed in points), *(y for _, y in corners)]
    left, right = limits(intensities)
    sources = (("measured", roofline.measured, "solid"), ("datasheet", roofline.datasheet, "dot"))
    roofs = [trace for name, known, dash in sources for trace in _roofs(name, known, roofline, left, right, dash)]
    layout = {
        "hovermode": "closest",
        "xaxis": _axis("FLOP/byte", (left, right)),
        "yaxis": {**_axis("FLOP/s", limits(rates)), "exponentformat": "SI"},
        "annotations": list(_peaks(roofline, right)),
    }
    description = "; ".join(f"{mark}: {_hover(placed, study)}" for mark, placed in points)
    return Figure(
        title=f"FLOP/s by FLOP/byte, {roofline.device}",
        description=description,
        data=[*roofs, *(_point(mark, placed, study, sides) for mark, placed in points)],
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
    for number, line in enumerate(lines(roofs, roofline, left, right)):
        xs, ys = zip(*line, strict=True)
        yield {
            "type": "scatter",
            "mode": "lines",
            "name": f"{name} roofs",
            "legendgroup": name,
            "showlegend": number == 0,
            "x": list(xs),
            "y": list(ys),
            "line": {"color": "--text" if dash == "solid" else "--quiet", "dash": dash, "width": 1.6},
            "hoverinfo": "skip",
        }


def _peaks(roofline: Roofline, right: float) -> Iterator[Data]:
    """Yield the name of each arithmetic below its peak, the measured one where there is one."""
    peaks = {**roofline.datasheet.flops_per_second, **roofline.measured.flops_per_second}
    for name in used_arithmetics(roofline):
        if name in peaks:
            rate = notation([peaks[name]], "FLOP/s").write(peaks[name])
            place = {"x": log10(right), "y": log10(peaks[name]), "xanchor": "right", "yanchor": "top"}
            yield {**place, "text": f"{name.upper()} {rate}", "showarrow": False, "font": {"color": "--quiet"}}


def _point(mark: str, placed: Placed, study: Study, sides: Sequence[str]) -> Data:
    index = sides.index(placed.point.group.side or "")
    at_most = placed.point.traffic_by is Traffic.LEAST
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": f"{mark} {safe(label(placed.point, study))}",
        "x": [short(placed.point.intensity or 0.0)],
        "y": [short(placed.point.flops_per_second)],
        "text": [f"← {mark}" if at_most else mark],
        "textposition": "middle left" if at_most else "top center",
        "textfont": {"size": 13, "color": "--text"},
        "marker": {"color": color(index), "symbol": symbol(index), "size": 10},
        "hovertext": [safe(_hover(placed, study))],
        "hoverinfo": "text",
    }


def _hover(placed: Placed, study: Study) -> str:
    point = placed.point
    rate = notation([point.flops_per_second], "FLOP/s").write(point.flops_per_second)
    most = "at most " if point.traffic_by is Traffic.LEAST else ""
    at = "" if point.intensity is None else f" at {most}{significant(point.intensity)} FLOP/byte"
    return f"{label(point, study)}: {rate}{at}, {counted(len(point.trials), 'run')}"
