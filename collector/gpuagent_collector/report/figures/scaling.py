"""The growth of throughput with the number of ranks."""

from dataclasses import replace

from gpuagent_collector.answers.scaling_curves import KINDS, CurveFigures, Held, Study, tell_apart
from gpuagent_collector.present.panel import Axis, Look, Panel, Series

MOST_CURVES = 12
# The factor between ranks of two curves, as they are drawn.
_APART = 1.015


def scaling_panel(study: Study) -> Panel:
    """Return the speed-up of each curve by its ranks, with intervals, beside what would be ideal."""
    curves = study.curves[:MOST_CURVES]
    series = [_curve(index, curve, study) for index, curve in enumerate(curves)]
    ranks = sorted({x for one in series for x in one.xs})
    lows = [y - by for one in series for y, by in zip(one.ys, one.down or [0] * len(one.ys), strict=True)]
    ratios = [y for one in series for y in one.ys]
    # What it would be without any loss, from the fewest ranks on.
    fewest = sorted({curve.curve.baseline.ranks for curve in curves})
    ideal = [
        Series(look=Look.DOTTED, name="ideal", xs=[first, ranks[-1]], ys=[1, ranks[-1] / first]) for first in fewest
    ]
    powers = [2.0**power for power in range(-6, 14)]
    highest = max(2, *ratios, *(one.ys[-1] for one in ideal))
    ticks = [power for power in powers if min(lows) / 1.1 <= power <= 1.1 * highest]
    described = (
        f"{one.name}: {', '.join(f'{y:.3g} on {x:g} ranks' for x, y in zip(one.xs, one.ys, strict=True))}"
        for one in series
    )
    return Panel(
        title="Speed-up by ranks",
        description="; ".join(described),
        x=Axis(title="ranks", is_logarithmic=True, ticks=ranks, names=[f"{rank:g}" for rank in ranks]),
        y=Axis(title="speed-up (×)", is_logarithmic=True, ticks=ticks, names=[f"{tick:g}" for tick in ticks]),
        series=[*ideal, *(_beside(one, len(series)) for one in series)],
    )


def _beside(one: Series, number: int) -> Series:
    """Return a curve a little to the side, so that no interval hides another; the baseline stays."""
    apart = _APART ** ((one.index or 0) - (number - 1) / 2)
    return replace(one, xs=[x if at == 0 else x * apart for at, x in enumerate(one.xs)])


def _curve(index: int, curve: CurveFigures, study: Study) -> Series:
    # Ranks, speed-up, and how far the interval reaches up and down.
    points = [(float(curve.curve.baseline.ranks), 1.0, 0.0, 0.0)]
    for row in curve.rows:
        if shift := row.speed_up:
            up = shift.high - shift.estimate if shift.high is not None else 0.0
            down = shift.estimate - shift.low if shift.low is not None else 0.0
            points.append((float(row.row.ranks), shift.estimate, up, down))
    xs, ys, up_by, down_by = zip(*sorted(points), strict=True)
    held = curve.curve.settings.held
    has_interval = any(row.speed_up and row.speed_up.low is not None for row in curve.rows)
    return Series(
        look=Look.CURVE,
        index=index,
        name=tell_apart(curve.curve, study.curves) + (f", {KINDS[held]}" if held is not Held.UNKNOWN else ""),
        xs=xs,
        ys=ys,
        up=up_by if has_interval else (),
        down=down_by if has_interval else (),
        hover=[f"{x:g} ranks: {y:.3g} times" for x, y in zip(xs, ys, strict=True)],
    )
