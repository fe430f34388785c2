"""The courses of the median runs, chart by chart, and their phases."""

from collections.abc import Iterator, Mapping

from gpuagent_collector.present.human import notation
from gpuagent_collector.report.figures.base import Data, Figure, color, draw_line, pale, safe, short
from gpuagent_collector.runs.series import CHARTS, Chart, Course, Curve, find_ends

_MEASURE = "measure"

# Room above the curves for the strips of phases.
_HEADROOM = 1.12


# The course of each side, by the position of the side among all.
Courses = Mapping[int, Course]


def phases_figure(courses: Courses) -> Figure | None:
    """Return when the phases of each run began and ended; None: no run reported any."""
    bars: list[Data] = []
    for index, course in courses.items():
        for phase in course.phases:
            seconds = phase.to_seconds - phase.from_seconds
            shade = f"{color(index)}-mark" if phase.name == _MEASURE else pale(index)
            bars.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "y": [safe(course.side)],
                    "base": [short(phase.from_seconds)],
                    "x": [short(seconds)],
                    "text": [safe(phase.name)],
                    "textposition": "inside",
                    "insidetextanchor": "middle",
                    "textangle": 0,
                    "textfont": {"color": "--text"},
                    "marker": {"color": shade, "line": {"color": color(index), "width": 1}},
                    "hovertext": [safe(f"{course.side}: {phase.name}, {seconds:.3g} s")],
                    "hoverinfo": "text",
                }
            )
    if not bars:
        return None
    phases = "; ".join(
        f"{course.side}: {', '.join(f'{phase.name} from {phase.from_seconds:.1f} s' for phase in course.phases)}"
        for course in courses.values()
        if course.phases
    )
    layout = {
        "barmode": "overlay",
        "uniformtext": {"mode": "hide", "minsize": 10},
        "bargap": 0.25,
        "showlegend": False,
        "xaxis": {**_seconds(courses), "title": {"text": "time"}},
        "yaxis": {"autorange": "reversed", "type": "category", "showgrid": False},
    }
    return Figure(
        title="Phases", description=phases, data=bars, layout=layout, height=80 + 30 * len(courses), linked=True
    )


def course_figures(courses: Courses) -> Iterator[Figure]:
    """Yield each chart that some run has readings for."""
    for chart in CHARTS:
        if any(chart in course.curves for course in courses.values()):
            yield _figure(chart, courses)


def _figure(chart: Chart, courses: Courses) -> Figure:
    curves = {index: course.curves[chart] for index, course in courses.items() if chart in course.curves}
    highest = max(reading.high for curve in curves.values() for stretch in curve for reading in stretch)
    scale = notation([highest], chart.unit)
    top = 100.0 if chart.unit == "percent" else highest / scale.divisor
    lines, bands, ranges = [], [], []
    shapes: list[Data] = []
    for index, curve in curves.items():
        side = courses[index].side
        readings = [reading for stretch in curve for reading in (*stretch, None)][:-1]
        xs = [short(reading.seconds) if reading else None for reading in readings]
        ys = [short(reading.mean / scale.divisor) if reading else None for reading in readings]
        line = draw_line(index, xs, ys, width=1.6, name=safe(side), hovertemplate="%{y:.4~g}")
        lines.append({**line, "mode": "lines+markers"} if any(len(stretch) == 1 for stretch in curve) else line)
        known = [reading for reading in readings if reading]
        # Without readings that differ in some bucket, a band would be its line.
        if any(short(reading.low) < short(reading.high) for reading in known):
            bands.append(_band(index, curve, scale.divisor))
        means = [reading.mean for reading in known]
        low, high = short(min(means) / scale.divisor), short(max(means) / scale.divisor)
        ranges.append(f"{side} between {low:g} and {high:g} {scale.symbol}")
    for row, (index, course) in enumerate(courses.items()):
        shapes += _draw_phases(row, index, course)
    layout = {
        "showlegend": False,
        "hovermode": "x unified",
        "shapes": shapes,
        "xaxis": _seconds(courses),
        "yaxis": {"range": [0, _HEADROOM * top], "ticksuffix": f" {scale.symbol}"},
    }
    return Figure(
        title=f"{chart.title}, {scale.symbol}",
        description=f"{chart.title} over time: {'; '.join(ranges)}",
        data=[*bands, *lines],
        layout=layout,
        height=210,
        linked=True,
    )


def _seconds(courses: Courses) -> Data:
    """Return the axis of time, the same for all charts: from the first phase or reading of any run to the last."""
    return {"range": list(find_ends(courses.values())), "ticksuffix": " s", "zeroline": False, "hoverformat": ".1f"}


def _band(index: int, curve: Curve, divisor: float) -> Data:
    """Return the area between the least and the most of each bucket, one outline for each stretch."""
    outline: list[tuple[float, float] | None] = []
    for stretch in curve:
        outline += [(reading.seconds, reading.high) for reading in stretch]
        outline += [(reading.seconds, reading.low) for reading in reversed(stretch)]
        outline.append(None)
    xs = [short(point[0]) if point else None for point in outline[:-1]]
    ys = [short(point[1] / divisor) if point else None for point in outline[:-1]]
    edge = {"width": 0, "color": pale(index)}
    return {**draw_line(index, xs, ys), "fill": "toself", "fillcolor": pale(index), "line": edge, "hoverinfo": "skip"}


def _draw_phases(row: int, index: int, course: Course) -> Iterator[Data]:
    """Yield shades where a run measured, and a strip above the curves for each of its phases."""
    for phase in course.phases:
        across = {"x0": short(phase.from_seconds), "x1": short(phase.to_seconds), "xref": "x", "yref": "paper"}
        area: Data = {"type": "rect", "line": {"width": 0}, "layer": "below", **across}
        measured = phase.name == _MEASURE
        if measured:
            yield {**area, "y0": 0, "y1": 1, "fillcolor": "--shade"}
        bottom = 0.98 - 0.03 * row
        yield {**area, "y0": bottom, "y1": bottom + 0.02, "fillcolor": color(index) if measured else pale(index)}
