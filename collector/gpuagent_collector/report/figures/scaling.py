"""The growth of throughput with the number of ranks."""

from gpuagent_collector.answers.scaling_curves import KINDS, CurveFigures, Study, tell_apart
from gpuagent_collector.report.figures.base import Data, Figure, draw_curve, draw_line

_MOST_CURVES = 6


def scaling_figure(study: Study) -> Figure:
    """Return the speed-up of each curve by its ranks, with intervals, beside what would be ideal."""
    curves = study.curves[:_MOST_CURVES]
    ranks = sorted({row.row.ranks for curve in curves for row in curve.rows})
    baselines = sorted({curve.curve.baseline.ranks for curve in curves})
    described = []
    for curve in curves:
        points = [f"{speed_up:.3g} on {number} ranks" for number, speed_up, _, _ in speed_ups(curve)]
        described.append(f"{name_curve(curve, study)}: {', '.join(points)}")
    layout = {
        "hovermode": "closest",
        "xaxis": {"type": "log", "title": {"text": "ranks"}, "tickvals": ranks},
        "yaxis": {"type": "log", "title": {"text": "speed-up"}, "tickvals": _POWERS, "ticksuffix": " ×"},
    }
    return Figure(
        title="Speed-up by ranks",
        description="; ".join(described),
        data=[
            *(_ideal(fewest, ranks[-1], named=fewest == baselines[0]) for fewest in baselines),
            *(_curve(index, curve, study) for index, curve in enumerate(curves)),
        ],
        layout=layout,
        height=340,
    )


_POWERS = [2**exponent for exponent in range(12)]


def _ideal(fewest: int, most: int, *, named: bool) -> Data:
    """Return what it would be without any loss, from the fewest ranks on."""
    ends = [fewest, most], [1, most / fewest]
    line = {"color": "--quiet", "dash": "dot", "width": 1.5}
    return {**draw_line(0, *ends), "line": line, "name": "ideal", "showlegend": named, "hoverinfo": "skip"}


def name_curve(curve: CurveFigures, study: Study) -> str:
    """Return the name of a curve among those of a study."""
    return f"{tell_apart(curve.curve, study.curves)}, {KINDS[curve.curve.settings.held]}"


def speed_ups(curve: CurveFigures) -> list[tuple[int, float, float, float]]:
    """Return ranks, speed-up, and how far the interval reaches up and down; nothing where there is none."""
    points = [(curve.curve.baseline.ranks, 1.0, 0.0, 0.0)]
    for row in curve.rows:
        if row.speed_up:
            shift = row.speed_up
            up = shift.high - shift.estimate if shift.high is not None else 0.0
            down = shift.estimate - shift.low if shift.low is not None else 0.0
            points.append((row.row.ranks, shift.estimate, up, down))
    return sorted(points)


def _curve(index: int, curve: CurveFigures, study: Study) -> Data:
    points = speed_ups(curve)
    hover = [f"{ranks} ranks: {ratio:.3g} times" for ranks, ratio, _, _ in points]
    return draw_curve(index, name_curve(curve, study), points, hover)
