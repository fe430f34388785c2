"""The growth of throughput with the number of ranks or nodes, beside the ideal line."""

from typing import Any

from gpuagent_collector.answers.scaling_curves import Study
from gpuagent_collector.plot.picture import QUIET, Picture, line_style, write_counts
from gpuagent_collector.report.figures.scaling import name_curve, speed_ups

_MOST_CURVES = 12
_PANEL_MM = {True: 75.0, False: 56.0}
_IDEAL: dict[str, Any] = {"color": QUIET, "ls": (0, (1, 1.5)), "lw": 1.0}


def draw_scaling(study: Study, width_mm: float) -> Picture:
    """Return the speed-up of each curve by its ranks, with 95 % intervals."""
    curves = study.curves[:_MOST_CURVES]
    rest = f" The first {len(curves)} of {len(study.curves)} curves." if len(curves) < len(study.curves) else ""
    counts = {len(row.row.trials) for curve in curves for row in curve.rows if row.row.trials}
    number = f"{write_counts(counts)}{' runs' if len(counts) > 1 else ''}"
    has_interval = any(row.speed_up and row.speed_up.low is not None for curve in curves for row in curve.rows)
    intervals = "with 95 % intervals (Hodges and Lehmann)" if has_interval else "too few runs for intervals"
    note = f"Ratios of throughput to that of the fewest ranks, {intervals};"
    picture = Picture(width_mm=width_mm, note=f"{note} n = {number} a point.{rest}")
    styles = [line_style(index) for index in range(len(curves))]
    for style, curve in zip(styles, curves, strict=True):
        picture.name_line(name_curve(curve, study), **style)
    picture.name_line("ideal", **_IDEAL)
    (axes,) = picture.panels([_PANEL_MM[picture.is_wide]])
    most = max(row.row.ranks for curve in curves for row in curve.rows)
    for fewest in {curve.curve.baseline.ranks for curve in curves}:
        axes.plot([fewest, most], [1, most / fewest], zorder=1, **_IDEAL)
    for style, curve in zip(styles, curves, strict=True):
        ranks, ratios, up, down = zip(*speed_ups(curve), strict=True)
        axes.errorbar(ranks, ratios, yerr=(down, up), capsize=2, elinewidth=0.9, **style)
    axes.set(xscale="log", yscale="log", xlabel="ranks", ylabel="speed-up (×)")
    ticks = sorted({row.row.ranks for curve in curves for row in curve.rows if row.row.trials})
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    highest = max(axes.get_ylim()[1], 2.0)
    powers = [2**exponent for exponent in range(-3, 14) if axes.get_ylim()[0] <= 2**exponent <= highest]
    axes.set_yticks(powers, [f"{power:g}" for power in powers])
    axes.minorticks_off()
    axes.grid()
    return picture
