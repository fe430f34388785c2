"""A roofline: both axes logarithmic, measured roofs drawn through, stated ones broken, points as letters."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil, floor, log10

from gpuagent_collector.answers.roofline_points import Point, Roofline, Traffic, merge_marks
from gpuagent_collector.present.human import in_unit, notation, significant
from gpuagent_collector.present.panel import Axis, Look, Panel, Place, Series
from gpuagent_common.text import counted

_MARGIN = 10**0.4
_LEAST_SPAN = 10**2
# Points nearer than these shares of the axes have one label.
_NEAR_ACROSS, _NEAR_UPWARDS = 0.04, 0.03


def number_points(rooflines: Sequence[Roofline], sides: Sequence[str]) -> Mapping[int, int]:
    """Return the index of each point's series by its identity: that of its side; of one side, the points differ."""
    points = [point for roofline in rooflines for point in roofline.points]
    several = len({point.run.side for point in points}) > 1
    return {id(one): sides.index(one.run.side or "") if several else number for number, one in enumerate(points)}


def roofline_panel(roofline: Roofline, indexes: Mapping[int, int], *, is_only: bool = True) -> Panel:
    """Return the points below the roofs of a device, which is named where it is not the only one."""
    points, corners = roofline.points, roofline.corners
    known = [point.intensity for point in points if point.intensity is not None]
    left, right = _ends([*known, *(x for x, _ in corners)])
    low, high = _ends([*(point.flops_per_second for point in points), *(y for _, y in corners)])
    device = "" if is_only else f" ({roofline.device})"
    series = []
    kinds = (("roof of the maker", roofline.datasheet, Look.BROKEN), ("measured roof", roofline.measured, Look.SOLID))
    for name, roofs, look in kinds:
        for number, line in enumerate(roofline.lines(roofs, left, right)):
            xs, ys = zip(*line, strict=True)
            series.append(Series(look=look, name="" if number else name, xs=xs, ys=ys))
    for point in points:
        # A line across where its traffic is unknown.
        across = [left, right] if point.intensity is None else [point.intensity]
        series.append(
            Series(
                look=Look.DOTTED if point.intensity is None else Look.POINTS,
                index=indexes[id(point)],
                name=f"{point.mark}{device} {point.brief_label} (n = {len(point.trials)})",
                xs=across,
                ys=[point.flops_per_second] * len(across),
                hover=[_hover(point)] * len(across),
            )
        )
    stated = roofline.datasheet.flops_per_second
    beside = left * (right / left) ** 0.05
    near = _NEAR_ACROSS * log10(right / left), _NEAR_UPWARDS * log10(high / low)
    marks = [*merge_marks(points, *near, unknown=beside)]
    peaks = []
    for name, peak in roofline.peaks.items():
        # Above both roofs, since the maker's would go through what is between them.
        by_maker = stated.get(name, peak)
        scale = notation([peak, by_maker], "FLOP/s")
        part = "" if by_maker == peak else f"{scale.write_bare(peak)} of "
        peaks.append((right, max(peak, by_maker), f"{name.upper()} {part}{scale.write(by_maker)}"))
    bandwidth = roofline.measured.bytes_per_second or roofline.datasheet.bytes_per_second
    if bandwidth and corners:
        ridge = min(corners)[0]
        peaks.append((ridge, ridge * bandwidth, f"memory {in_unit('bytes/s')(bandwidth)}"))
    return Panel(
        title=f"FLOP/s by FLOP/byte, {roofline.device}",
        description="; ".join(f"{point.mark}: {_hover(point)}" for point in points),
        x=_axis(
            "FLOP/byte of device memory traffic",
            (left, right),
            lambda value: significant(value) if value >= 1 else f"{value:g}",
        ),
        y=_axis("FLOP/s", (low, high), lambda value: in_unit("FLOP/s")(value).removesuffix("FLOP/s").rstrip()),
        series=[*series, _labels(marks, Place.CENTER), _labels(peaks, Place.LEFT)],
        height=430,
    )


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of a logarithmic axis that shows all values, with a margin."""
    low, high = min(values) / _MARGIN, max(values) * _MARGIN
    spread = max(1.0, (_LEAST_SPAN / (high / low)) ** 0.5)
    return low / spread, high * spread


def _axis(title: str, ends: tuple[float, float], write: Callable[[float], str]) -> Axis:
    ticks = [10.0**power for power in range(ceil(log10(ends[0])), floor(log10(ends[1])) + 1)]
    return Axis(title=title, is_logarithmic=True, ends=ends, ticks=ticks, names=[write(tick) for tick in ticks])


def _labels(found: Sequence[tuple[float, float, str]], place: Place) -> Series:
    xs, ys, texts = zip(*found, strict=True) if found else ((), (), ())
    return Series(look=Look.NOTHING, xs=xs, ys=ys, labels=texts, place=place)


def _hover(point: Point) -> str:
    most = "at most " if point.traffic_by is Traffic.LEAST else ""
    at = "" if point.intensity is None else f" at {most}{significant(point.intensity)} FLOP/byte"
    return f"{point.label}: {in_unit('FLOP/s')(point.flops_per_second)}{at}, {counted(len(point.trials), 'run')}"
