"""Latency of servers by the tokens a second that they give, a point for each load."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from gpuagent_collector.answers.serving import LIMITED, LOADS, Curve, Point, Study, write_limits
from gpuagent_collector.plot.picture import QUIET, Picture, color, line_style, write_counts
from gpuagent_collector.present.human import notation, significant
from gpuagent_collector.report.figures.serving import name_line

_MOST_LINES = 12
_PANEL_MM = {True: 62.0, False: 50.0}
_LIMIT: dict[str, Any] = {"color": QUIET, "ls": (0, (1, 1.5)), "lw": 1.0}


def draw_serving(study: Study, width_mm: float) -> Picture:
    """Return two kinds of latency by tokens a second. Numbers are loads.

    Points with six runs or more have the 95 % interval of the median of the first limited latency.
    """
    lines = study.lines[:_MOST_LINES]
    runs = write_counts(point.runs for curve, side in lines for point in curve.points[side] if point.runs)
    has_interval = any(point.low is not None for curve, side in lines for point in curve.points[side])
    medians = "Medians over runs" + ", with 95 % intervals" * has_interval
    limits = dict.fromkeys(write_limits(curve) for curve in study.curves if curve.limits.milliseconds)
    units = dict.fromkeys(LOADS[curve.load] for curve in study.curves)
    picture = Picture(
        width_mm=width_mm,
        note=f"{medians}; a number is the load in {' or '.join(units)}. n = {runs} runs a point."
        + "".join(f" Dotted: the limit, {words}." for words in limits),
    )
    for index, (curve, side) in enumerate(lines):
        picture.name_line(name_line(curve, side, study), **line_style(index))
    axes = picture.panels([_PANEL_MM[picture.is_wide]] * (1 if picture.is_wide else 2), columns=1 + picture.is_wide)
    for one, kind in zip(axes, study.curves[0].limits.kinds, strict=False):
        _draw(one, kind, lines)
    return picture


def _draw(axes: Axes, kind: str, lines: list[tuple[Curve, str]]) -> None:
    values = [value for curve, side in lines for point in curve.points[side] if (value := _latency(point, kind, curve))]
    limits = {curve.limits.milliseconds[kind] / 1000 for curve, _ in lines if kind in curve.limits.milliseconds}
    scale = notation(values or [1.0], "seconds")
    for index, (curve, side) in enumerate(lines):
        found = [
            (point.figures["throughput"], value / scale.divisor, point.load)
            for point in curve.points[side]
            if (value := _latency(point, kind, curve)) and "throughput" in point.figures
        ]
        if found:
            xs, ys, loads = zip(*found, strict=True)
            axes.plot(xs, ys, **line_style(index))
            for x, y, load in zip(xs, ys, loads, strict=True):
                axes.annotate(significant(load), (x, y), textcoords="offset points", xytext=(3, 3), color=QUIET)
        for point in curve.points[side] if curve.limits.metric.startswith(kind) else ():
            if point.low is not None and point.high is not None and "throughput" in point.figures:
                ends = point.low / scale.divisor, point.high / scale.divisor
                axes.vlines(point.figures["throughput"], *ends, color=color(index), lw=0.9)
    for limit in limits:
        axes.axhline(limit / scale.divisor, **_LIMIT)
    percent = lines[0][0].limits.percent
    axes.set(xlabel="output tokens per second", ylabel=f"{LIMITED[kind]} p{percent} ({scale.symbol})", yscale="log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.set_xlim(left=0)
    axes.grid()


def _latency(point: Point, kind: str, curve: Curve) -> float | None:
    return point.figures.get(f"{kind}_p{curve.limits.percent}_seconds")
