"""Latency of servers by the tokens a second that they give."""

from gpuagent_collector.answers.serving import LOADS, Curve, Study, tell_apart
from gpuagent_collector.present.human import significant
from gpuagent_collector.report.figures.base import Data, Figure, draw_curve, short

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
            "xaxis": {"title": {"text": "output tokens per second"}, "rangemode": "tozero"},
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
    points, hover = [], []
    for point in curve.points[side]:
        if "throughput" in point.figures:
            value = point.figures[metric]
            up = 0.0 if point.high is None else point.high - value
            down = 0.0 if point.low is None else value - point.low
            points.append((short(point.figures["throughput"]), value, up, down))
            hover.append(f"{significant(point.load)} {unit}: {significant(value)} s")
    return draw_curve(index, name_line(curve, side, study), points, hover)
