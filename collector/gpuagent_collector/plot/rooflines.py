"""Rooflines: both axes logarithmic, measured roofs drawn through, stated ones broken, points as letters."""

from collections.abc import Mapping, Sequence
from math import log10

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from gpuagent_collector.answers.roofline import Study, find_errors
from gpuagent_collector.answers.roofline_points import Point, Roofline, Traffic, merge_marks
from gpuagent_collector.plot.picture import QUIET, Picture, color, marker
from gpuagent_collector.present.human import in_unit, significant
from gpuagent_collector.report.figures.rooflines import limits
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.text import counted, harmless

_PANEL_MM = {True: 80.0, False: 62.0}
# Points nearer than this have one label: across in print, and as a share of the axis upwards.
_NEAR_MM, _NEAR = 4.0, 0.03


def draw_rooflines(study: Study, width_mm: float) -> Picture:
    """Return a panel for each device that has roofs.

    Raises:
        GpuAgentError: there is no roof.
    """
    known = [roofline for roofline in study.rooflines if roofline.corners]
    if not known:
        raise GpuAgentError(
            "no roofline to draw: run `gpuagent run ceilings` on the device; `collector roofline` has more"
        )
    errors = " ".join(f"Wrong: {caveat.text}." for caveat in find_errors(study))
    drawn = [point for roofline in known for point in roofline.points]
    picture = Picture(width_mm=width_mm, note=f"{_note(known, drawn)} {errors}".strip())
    hidden = sum(len(roofline.points) for roofline in study.rooflines) - len(drawn)
    if any(point.intensity is None for point in drawn):
        picture.note += " Dotted: the traffic is unknown, and so the place from left to right."
    if hidden:
        picture.note += f" Not drawn: {counted(hidden, 'point')} of devices without roofs."
    sides = list(dict.fromkeys(point.run.side for point in drawn))
    # Of one side, the points differ.
    series = {id(one): sides.index(one.run.side) if sides[1:] else number for number, one in enumerate(drawn)}
    for point in drawn:
        index, device = series[id(point)], f" ({point.device})" if known[1:] else ""
        name = f"{point.mark}{device} {point.brief_label} (n = {len(point.trials)})"
        picture.name_line(name, ls="none", marker=marker(index), color=color(index))
    panels = picture.panels([_PANEL_MM[picture.is_wide]] * len(known))
    for axes, roofline in zip(panels, known, strict=True):
        _draw(axes, roofline, series, picture)
    return picture


def _note(known: Sequence[Roofline], drawn: Sequence[Point]) -> str:
    """Return what the lines, arrows and points mean that are there."""
    is_measured = any(roofline.ridges(roofline.measured) for roofline in known)
    is_of_maker = any(roofline.ridges(roofline.datasheet) for roofline in known)
    notes = ["Points are medians over runs."]
    if any(point.traffic_by is Traffic.LEAST for point in drawn):
        notes.insert(0, "←: at most so far right, as only the least traffic is known.")
    if is_of_maker:
        notes.insert(
            0, "Broken: roofs of the maker." if is_measured else "Broken: roofs of the maker; none is measured."
        )
    if is_measured:
        notes.insert(0, "Solid: measured roofs.")
    return " ".join(notes)


def _draw(axes: Axes, roofline: Roofline, series: Mapping[int, int], picture: Picture) -> None:
    size = picture.size
    points, corners = roofline.points, roofline.corners
    known = [point.intensity for point in points if point.intensity is not None]
    left, right = limits([*known, *(x for x, _ in corners)])
    low, high = limits([*(point.flops_per_second for point in points), *(y for _, y in corners)])
    for roofs, pattern, shade in ((roofline.datasheet, (0, (4, 2)), QUIET), (roofline.measured, "-", "black")):
        for line in roofline.lines(roofs, left, right):
            axes.plot(*zip(*line, strict=True), color=shade, ls=pattern, lw=1.0, zorder=1)
    for name, peak in roofline.peaks.items():
        axes.annotate(
            f"{name.upper()} {in_unit('FLOP/s')(peak)}",
            (right, peak),
            # Above: points are below.
            (-2, 1),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=size - 1.5,
        )
    for point in points:
        index = series[id(point)]
        if point.intensity is None:
            axes.axhline(point.flops_per_second, color=color(index), ls=(0, (1, 2)), lw=1.0)
        else:
            axes.plot(point.intensity, point.flops_per_second, marker=marker(index), color=color(index), ms=5)
    across, upwards = log10(right / left), log10(high / low)
    beside = left * (right / left) ** 0.05
    for x, y, text in merge_marks(points, across * _NEAR_MM / picture.width_mm, upwards * _NEAR, unknown=beside):
        axes.annotate(text, (x, y), (0, 4), textcoords="offset points", ha="center", va="bottom", fontsize=size)
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(low, high))
    axes.set_title(harmless(roofline.device))
    axes.set_xlabel("FLOP/byte of device memory traffic")
    axes.set_ylabel("FLOP/s")
    axes.yaxis.set_major_locator(LogLocator())
    axes.yaxis.set_major_formatter(lambda value, _: in_unit("FLOP/s")(value).removesuffix("FLOP/s"))
    axes.xaxis.set_major_formatter(lambda value, _: significant(value) if value >= 1 else f"{value:g}")
    axes.minorticks_off()
    axes.grid(color="#eeeeee")
