"""Latency of servers by the tokens a second that they give, a point for each load."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import ceil, floor, log10

from gpuagent_collector.answers.serving import tell_apart
from gpuagent_collector.answers.serving_curves import LIMITED, LOADS, Curve, Point, Study
from gpuagent_collector.present.human import Notation, notation, significant
from gpuagent_collector.present.panel import Axis, Look, Panel, Place, Series

MOST_LINES = 12


def serving_panels(study: Study) -> Iterator[Panel]:
    """Yield each shown kind of latency of each side at each load, beside the limit; the limited one has intervals."""
    lines = study.lines[:MOST_LINES]
    for kind in study.curves[0].limits.kinds if study.curves else ():
        values = [point.figures[_metric(kind, curve)] for curve, side in lines for point in _points(curve, side, kind)]
        if not values:
            continue
        scale = notation(values, "seconds")
        series = [_line(index, curve, side, study, kind, scale) for index, (curve, side) in enumerate(lines)]
        right = 1.08 * max(x for one in series for x in one.xs)
        limits = {curve.limits.milliseconds[kind] / 1000 for curve, _ in lines if kind in curve.limits.milliseconds}
        dotted = [
            Series(look=Look.DOTTED, xs=[0, right], ys=[limit / scale.divisor] * 2, hover=["limit"] * 2)
            for limit in sorted(limits)
        ]
        title = f"{LIMITED[kind]} p{lines[0][0].limits.percent}"
        described = "; ".join(f"{one.name}: {', '.join(one.hover)}" for one in series)
        yield Panel(
            title=f"{title} by tokens a second",
            description=described,
            x=Axis(title="output tokens per second", ends=(0, right)),
            y=_latency_axis(title, scale.symbol, [*dotted, *series]),
            series=[*dotted, *series],
        )


# With two ticks a logarithmic axis looks like a linear one.
_FEWEST_TICKS = 3


def _latency_axis(title: str, unit: str, series: Sequence[Series]) -> Axis:
    """Return an axis with ticks at 1, 2 and 5 times a power of ten, or at every digit, named in full."""
    values = [y for one in series for y in one.ys]
    values += [y + up for one in series for y, up in zip(one.ys, one.up, strict=False)]
    # Wide enough for a tick, whatever the values.
    lowest, highest = 0.6 * min(values), 1.6 * max(values)
    decades = range(floor(log10(lowest)), ceil(log10(highest)))
    ticks: list[float] = []
    for digits in (1, 2, 5), range(1, 10):
        if len(ticks) < _FEWEST_TICKS:
            found = [digit * 10.0**decade for decade, digit in product(decades, digits)]
            ticks = [tick for tick in found if lowest <= tick <= highest]
    names = [f"{tick:,.10g}" for tick in ticks]
    return Axis(title=title, unit=unit, is_logarithmic=True, ends=(lowest, highest), ticks=ticks, names=names)


def _metric(kind: str, curve: Curve) -> str:
    return f"{kind}_p{curve.limits.percent}_seconds"


def _points(curve: Curve, side: str, kind: str) -> list[Point]:
    """Return the points that can be drawn."""
    metric = _metric(kind, curve)
    return [point for point in curve.points[side] if point.figures.get(metric) and "throughput" in point.figures]


def _line(index: int, curve: Curve, side: str, study: Study, kind: str, scale: Notation) -> Series:
    metric, unit, telling = _metric(kind, curve), LOADS[curve.load], tell_apart(curve, study)
    found = _points(curve, side, kind)
    values = [point.figures[metric] for point in found]
    up, down = [], []
    for point, value in zip(found, values, strict=True):
        if metric == curve.limits.metric and any(one.low is not None for one in found):
            low, high = (value if end is None else end for end in (point.low, point.high))
            up.append((high - value) / scale.divisor)
            down.append((value - low) / scale.divisor)
    return Series(
        look=Look.CURVE,
        index=index,
        name=f"{side}, {telling}" if telling else side,
        xs=[point.figures["throughput"] for point in found],
        ys=[value / scale.divisor for value in values],
        up=up,
        down=down,
        labels=[significant(point.load) for point in found],
        place=Place.RIGHT,
        hover=[
            f"{significant(point.load)} {unit}: {scale.write(value)}"
            for point, value in zip(found, values, strict=True)
        ],
    )
