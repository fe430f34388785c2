"""Time series drawn with the terminal's characters. Sides differ in their marks; colours only help."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil, floor, log10
from typing import Any

from gpuagent_collector.present.human import notation
from gpuagent_collector.present.shortening import shorten
from gpuagent_collector.runs.series import CHARTS, Chart, Course, find_ends

# The marker of each curve, and its symbol in the legend. More curves than these would cover one another.
_MARKS = (("braille", "⣀"), ("hd", "▄"), *((mark, mark) for mark in "+xo*#@%=&~"))

_COLORS = ("cyan", "orange", "magenta", "green", "red")

# Marks and names that share a line, in characters.
_LINE = 76

# Of the name of a side.
_MOST_CHARACTERS = 40

# With the title and the axis; the rows between are an odd number, so that one is in the middle.
_HEIGHT_ROWS = 10
_TICKS = 6


def legend(courses: Sequence[Course]) -> list[str]:
    """Return lines with the mark of each run, and how many runs have none."""
    marks = []
    for index, (side, course) in enumerate(zip(_names(courses), courses, strict=True)):
        repeat = "" if course.run.repeat is None else f", repeat {course.run.repeat}"
        marks += [f"{_MARKS[index][1]} {side}{repeat}"] if index < len(_MARKS) else []
    if rest := len(courses) - len(marks):
        marks.append(f"not drawn: {rest} more")
    line = "   ".join(marks)
    return [line] if len(line) <= _LINE else marks


def _names(courses: Sequence[Course]) -> list[str]:
    return shorten([course.side for course in courses], _MOST_CHARACTERS)


def phase_lines(courses: Sequence[Course]) -> list[str]:
    """Return the start of each run's phases, a line for each run that reported some."""
    names = _names(courses)
    width = max(map(len, names), default=0)
    return [
        f"{side:<{width}}  "
        + " ".join(f"{phase.name} {_seconds(phase.from_seconds)}" for phase in course.phases)
        + f" end {_seconds(course.phases[-1].to_seconds)} s"
        for side, course in zip(names, courses, strict=True)
        if course.phases
    ]


def draw_charts(courses: Sequence[Course], width: int) -> list[str]:
    """Return each chart with readings: lines of text with ANSI colours, `width` columns wide."""
    drawn = courses[: len(_MARKS)]
    return [_draw(chart, drawn, width) for chart in CHARTS if any(course.curves.get(chart) for course in drawn)]


def _draw(chart: Chart, courses: Sequence[Course], width: int) -> str:
    curves = {index: course.curves[chart] for index, course in enumerate(courses) if course.curves.get(chart)}
    # Imported here since it takes 0.1 s and most answers have no chart.
    import plotext

    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(width, _HEIGHT_ROWS)
    figure.axes(active=False, side=1)
    highest = max(reading.mean for curve in curves.values() for stretch in curve for reading in stretch)
    scale = notation([highest], chart.unit)
    top = 100.0 if chart.unit == "percent" else scale.divisor * _rounded_up(highest / scale.divisor)
    _set_axis(figure, "y", 0, top, [0.0, top / 2, top], lambda tick: f"{tick / scale.divisor:>5g}")
    # The first and last seconds of every curve, so that all charts have one axis.
    first, last = find_ends(replace(course, phases=()) for course in courses)
    step = _rounded_up((last - first) / _TICKS)
    ticks = [step * number for number in range(ceil(first / step), floor(last / step) + 1)]
    _set_axis(figure, "x", first, last, ticks, lambda tick: f"{tick:g} s")
    # Not figure.line, which paints a white background.
    measured = [phase for course in courses for phase in course.phases if phase.name == "measure"]
    for boundary in sorted({end for phase in measured for end in (phase.from_seconds, phase.to_seconds)}):
        if first <= boundary <= last:
            figure.draw(figure.segment([boundary, boundary], [0, top], marker="┊"))
    for index, curve in curves.items():
        mark = plotext.marker(_MARKS[index][0], pixel=_COLORS[index % len(_COLORS)])
        for stretch in curve:
            seconds = [reading.seconds for reading in stretch]
            # plotext takes memory for each point of a line, also outside the chart.
            values = [min(max(reading.mean, 0.0), top) for reading in stretch]
            figure.draw(figure.signal(seconds, values, marker=mark).lines())
    figure.title(f"{chart.title}, {scale.symbol}")
    return str(figure.build())


def _set_axis(
    figure: Any, axis: str, low: float, high: float, ticks: Sequence[float], write: Callable[[float], str]
) -> None:
    ruler = figure.ruler(axis)
    ruler.lim(low, high)
    ruler.ticks(ticks, [write(tick) for tick in ticks])


def _rounded_up(value: float) -> float:
    """Return the next of 1, 2, 5, 10, 20, 50, …; 1 for 0 and what is as good as 0."""
    if value < 1e-300:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return power * next(factor for factor in (1, 2, 5, 10) if value <= factor * power * (1 + 1e-9))


def _seconds(value: float) -> str:
    return f"{value:.1f}".replace("-", "−")
