"""Latency of servers by the tokens a second that they give."""

from gpuagent_collector.answers.serving import LOADS, Curve, Study, tell_apart
from gpuagent_collector.present.human import significant
from gpuagent_collector.report.figures.base import Data, Figure, color, dash, safe, short, symbol

_MOST_LINES = 6


def serving_figure(study: Study) -> Figure:
    """Return the latency of each side at each load, beside the limit."""
    lines = study.lines[:_MOST_LINES]
    limits = {most / 1000 for curve, _ in lines for most in list(curve.limits.milliseconds.values())[:1]}
    title = lines[0][0].limits.metric.removesuffix("_seconds").replace("_", " ").upper()
    return Figure(
        title=f"{title} by tokens a second",
        description="; ".join(f"{name_line(curve, side, study)}: {_describe(curve, side)}" for curve, side in lines),
        data=[_line(index, curve, side, study) for index, (curve, side) in enumerate(lines)],
        layout={
            "hovermode": "closest",
            "xaxis": {"title": {"text": "tokens of answers a second"}, "rangemode": "tozero"},
            "yaxis": {"type": "log", "title": {"text": f"{title}, s"}},
            "shapes": [
                {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": most, "y1": most, "line": _LIMIT}
                for most in limits
            ],
        },
        height=340,
    )


_LIMIT: Data = {"color": "--quiet", "dash": "dot", "width": 1.5}


def name_line(curve: Curve, side: str, study: Study) -> str:
    """Return the name of a side's line among those of a study."""
    telling = tell_apart(curve, study)
    return f"{side}, {telling}" if telling else side


def _describe(curve: Curve, side: str) -> str:
    metric, unit = curve.limits.metric, LOADS[curve.load]
    return ", ".join(
        f"{significant(point.figures[metric])} s at {significant(point.load)} {unit}"
        for point in curve.points[side]
        if metric in point.figures
    )


def _line(index: int, curve: Curve, side: str, study: Study) -> Data:
    metric, unit = curve.limits.metric, LOADS[curve.load]
    points = [point for point in curve.points[side] if "throughput" in point.figures]
    ends = [(point.low, point.high, point.figures[metric]) for point in points]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": safe(name_line(curve, side, study)),
        "x": [short(point.figures["throughput"]) for point in points],
        "y": [short(point.figures[metric]) for point in points],
        "error_y": {
            "type": "data",
            "array": [0.0 if high is None else high - value for _, high, value in ends],
            "arrayminus": [0.0 if low is None else value - low for low, _, value in ends],
            "color": color(index),
        },
        "line": {"color": color(index), "dash": dash(index), "width": 2},
        "marker": {"color": color(index), "symbol": symbol(index), "size": 9},
        "hovertext": [f"{significant(point.load)} {unit}: {significant(point.figures[metric])} s" for point in points],
        "hoverinfo": "text",
    }
