"""Time series drawn with the terminal's characters. Sides differ in their marks; colours only help."""

from collections.abc import Mapping, Sequence
from math import ceil, floor, log10

import plotext

from gpuagent_collector.output.human import notation
from gpuagent_collector.runs.series import CHARTS, Chart, Points, Trace

# The marker of each side, and its symbol in the legend.
_MARKS = (("braille", "⣀"), ("hd", "▄"), ("+", "+"), ("x", "x"), ("o", "o"))

_COLORS = ("cyan", "orange", "magenta", "green", "red")

_HEIGHT_ROWS = 9
_TICKS = 6


def legend(traces: Sequence[Trace]) -> str:
    """Return the mark of each run."""
    return "   ".join(
        f"{_MARKS[index % len(_MARKS)][1]} {trace.side}, repeat {trace.repeat}" for index, trace in enumerate(traces)
    )


def phase_lines(traces: Sequence[Trace]) -> list[str]:
    """Return the start of each run's phases, a line for each run that reported some."""
    width = max((len(trace.side) for trace in traces), default=0)
    return [
        f"{trace.side:<{width}}  "
        + " ".join(f"{phase.name} {_seconds(phase.from_seconds)}" for phase in trace.phases)
        + f" end {_seconds(trace.phases[-1].to_seconds)} s"
        for trace in traces
        if trace.phases
    ]


def draw_charts(traces: Sequence[Trace], width: int) -> list[str]:
    """Return each chart with readings: lines of text with ANSI colours, `width` columns wide."""
    return [_draw(chart, traces, width) for chart in CHARTS if any(trace.curves.get(chart) for trace in traces)]


def _draw(chart: Chart, traces: Sequence[Trace], width: int) -> str:
    curves = {index: trace.curves[chart] for index, trace in enumerate(traces) if trace.curves.get(chart)}
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(width, _HEIGHT_ROWS)
    figure.axes(active=False, side=1)
    unit, top = _scale_values(chart, curves)
    _scale_seconds([seconds for points in curves.values() for seconds, _ in points])
    measured = [phase for trace in traces for phase in trace.phases if phase.name == "measure"]
    for boundary in sorted({end for phase in measured for end in (phase.from_seconds, phase.to_seconds)}):
        # Not figure.line, which paints a white background.
        figure.draw(figure.segment([boundary, boundary], [0, top], marker="┊"))
    for index, points in curves.items():
        mark = plotext.marker(_MARKS[index % len(_MARKS)][0], pixel=_COLORS[index % len(_COLORS)])
        seconds, values = zip(*points, strict=True)
        figure.draw(figure.signal(seconds, values, marker=mark).lines())
    figure.title(f"{chart.title}, {unit}")
    return str(figure.build())


def _scale_values(chart: Chart, curves: Mapping[int, Points]) -> tuple[str, float]:
    """Start the axis of values at 0, and return its unit and its upper end."""
    highest = max(value for points in curves.values() for _, value in points)
    scale = notation([highest], chart.unit)
    top = 100.0 if chart.unit == "percent" else scale.divisor * _rounded_up(highest / scale.divisor)
    ticks = [0.0, top / 2, top]
    ruler = plotext.figure.ruler("y")
    ruler.lim(0, top)
    ruler.ticks(ticks, [f"{tick / scale.divisor:>5g}" for tick in ticks])
    return scale.symbol, top


def _scale_seconds(seconds: Sequence[float]) -> None:
    first, last = min(seconds), max(seconds)
    step = _rounded_up((last - first) / _TICKS)
    ticks = [step * number for number in range(ceil(first / step), floor(last / step) + 1)]
    ruler = plotext.figure.ruler("x")
    ruler.lim(first, last)
    ruler.ticks(ticks, [f"{tick:g} s" for tick in ticks])


def _rounded_up(value: float) -> float:
    """Return the next of 1, 2, 5, 10, 20, 50, …; 1 for 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return power * next(factor for factor in (1, 2, 5, 10) if value <= factor * power * (1 + 1e-9))


def _seconds(value: float) -> str:
    return f"{value:.1f}".replace("-", "−")
