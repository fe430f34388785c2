"""`collector roofline`: what bounds a run, beside the limits of its device."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from math import ceil, floor, log10
from typing import Any

import plotext
from rich.console import Console
from rich.text import Text

from gpuagent_collector.answers.roofline_points import Flops, Point, Roofs, RoofShares, Traffic
from gpuagent_collector.answers.roofline_study import (
    NEARNESS,
    Placed,
    Roofline,
    Study,
    arithmetic_of,
    find_caveats,
    find_errors,
    intensity_of,
    label,
    marked,
    roofs_of,
    used_arithmetics,
)
from gpuagent_collector.present.answer import Section, caveat_sections, in_short, read_warnings
from gpuagent_collector.present.human import notation, significant
from gpuagent_collector.present.rendering import Rendering
from gpuagent_collector.present.table import Grid
from gpuagent_collector.present.terminal import print_sections
from gpuagent_collector.present.values import ABSENT

LEGEND = "━ measured roofs  · datasheet  a point  ←a at most so far right (bytes ≥ …)"

_HEIGHT_ROWS = 20
_MEASURED, _STATED = "braille", "·"
_MARGIN_DECADES = 0.25

# Logarithms of FLOP/byte and of FLOP/s, the letter, and the source of the bytes.
Mark = tuple[float, float, str, Traffic | None]

# Points (FLOP/byte, FLOP/s) that are joined.
Line = Sequence[tuple[float, float]]


def ridges(roofs: Roofs, roofline: Roofline) -> list[tuple[float, float]]:
    """Return the points where each arithmetic's roof meets the memory's: (FLOP/byte, FLOP/s)."""
    if roofs.bytes_per_second is None:
        return []
    peaks = [roofs.flops_per_second[name] for name in used_arithmetics(roofline) if name in roofs.flops_per_second]
    return [(peak / roofs.bytes_per_second, peak) for peak in peaks]


def lines(roofs: Roofs, roofline: Roofline, left: float, right: float) -> Iterable[Line]:
    """Yield the memory's roof up to the highest ridge, and the peak from each ridge on."""
    corners = ridges(roofs, roofline)
    if not corners or roofs.bytes_per_second is None:
        return
    yield [(left, left * roofs.bytes_per_second), max(corners)]
    for intensity, peak in corners:
        yield [(intensity, peak), (right, peak)]


def draw_roofline(roofline: Roofline, width: int) -> str | None:
    """Return lines of text with ANSI colours, `width` columns wide; None: there is no roof or no point to draw."""
    points = [
        (log10(placed.point.intensity), log10(placed.point.flops_per_second), mark, placed.point.traffic_by)
        for mark, placed in marked(roofline)
        if placed.point.intensity is not None
    ]
    corners = [*ridges(roofline.measured, roofline), *ridges(roofline.datasheet, roofline)]
    if not points or not corners:
        return None
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(width, _HEIGHT_ROWS)
    left, right = _limits("x", [*(x for x, *_ in points), *(log10(x) for x, _ in corners)])
    low, high = _limits("y", [*(y for _, y, *_ in points), *(log10(y) for _, y in corners)])
    for roofs, marker, color in ((roofline.datasheet, _STATED, "gray"), (roofline.measured, _MEASURED, "cyan")):
        for line in lines(roofs, roofline, 10**left, 10**right):
            xs, ys = zip(*[(log10(x), log10(y)) for x, y in line], strict=True)
            figure.draw(figure.segment(list(xs), list(ys), marker=plotext.marker(marker, pixel=color)))
    # The name of each arithmetic on its peak, the measured one where there is one.
    peaks = {**roofline.datasheet.flops_per_second, **roofline.measured.flops_per_second}
    for name in used_arithmetics(roofline):
        if name in peaks:
            figure.draw(figure.text(right, log10(peaks[name]), f" {name.upper()} ", alignment="right"))
    for x, y, text in _merge_marks(points, (right - left) / width, (high - low) / _HEIGHT_ROWS):
        figure.draw(figure.text(x, y, text, alignment="right"))
    figure.title("FLOP/s by FLOP/byte")
    return str(figure.build())


def _merge_marks(points: Iterable[Mark], column: float, row: float) -> Iterator[tuple[float, float, str]]:
    """Yield the marks and their places; points that would hide one another share a mark."""
    groups: list[list[Mark]] = []
    for point in points:
        near = (each for each in groups if abs(each[0][0] - point[0]) < 2 * column and abs(each[0][1] - point[1]) < row)
        group = next(near, None)
        if group is None:
            groups.append([point])
        else:
            group.append(point)
    for members in groups:
        x, y, *_ = members[0]
        arrow = "←" if any(by is Traffic.LEAST for *_, by in members) else ""
        yield x, y, arrow + "".join(mark for _, _, mark, _ in members)


def _limits(axis: str, values: Sequence[float]) -> tuple[float, float]:
    """Set an axis a bit wider than the values, which are logarithms, with a tick at each decade; return its ends."""
    low, high = min(values) - _MARGIN_DECADES, max(values) + _MARGIN_DECADES
    if high - low < 2:
        middle = (low + high) / 2
        low, high = middle - 1, middle + 1
    ruler = plotext.figure.ruler(axis)
    ruler.lim(low, high)
    decades = range(ceil(low), floor(high) + 1)
    ruler.ticks(list(decades), [_tick(axis, 10.0**decade) for decade in decades])
    return low, high


def _tick(axis: str, value: float) -> str:
    if axis == "y":
        return notation([value], "FLOP/s").write(value)
    return significant(value) if value >= 1 else f"{value:g}"


# The tables have the others.
_SPOKEN_POINTS = 3

# From here on the answer mentions idle time: then neither roof bounds the step.
_OFTEN_IDLE_PERCENT = 20


def answer(study: Study, errors: int, warnings: int) -> str:
    """Return the performance of the first points, and a pointer to errors and warnings."""
    points = [(mark, roofline.device, placed) for roofline in study.rooflines for mark, placed in marked(roofline)]
    sentences = [_sentence(mark, device, placed, study) for mark, device, placed in points]
    return " ".join([*in_short(sentences, most=_SPOKEN_POINTS), *read_warnings(warnings, errors)])


def _sentence(mark: str, device: str, placed: Placed, study: Study) -> str:
    point = placed.point
    rate = notation([point.flops_per_second], "FLOP/s").write(point.flops_per_second)
    intensity = intensity_of(point)
    at = f" at {intensity} FLOP/byte" if intensity else ""
    return f"{mark} {label(point, study)} on {device}: {rate}{at}{_describe_share(placed)}{_idle(point.busy_percent)}."


def _describe_share(placed: Placed) -> str:
    """Return the share of the measured roof, else of the datasheet's; without bytes that of the peak."""
    for name, standing in (("measured", placed.measured), ("datasheet's", placed.datasheet)):
        if standing.roof_percent is not None:
            least = "at least " if placed.point.traffic_by is Traffic.LEAST else ""
            side = f" on the {standing.side.value} side" if standing.side else ""
            return f", {least}{significant(standing.roof_percent)} % of the {name} roof{side}"
    for name, standing in (("measured", placed.measured), ("datasheet's", placed.datasheet)):
        if standing.mfu_percent is not None:
            return f", {significant(standing.mfu_percent)} % of the {name} peak of its arithmetic"
    return ", its share of a roof is unknown"


def _idle(busy_percent: float | None) -> str:
    if busy_percent is None or 100 - busy_percent < _OFTEN_IDLE_PERCENT:
        return ""
    idle = significant(100 - busy_percent)
    return f"; its GPU was idle for {idle} % of a step, so launches or input limit it before any roof"


# Wider ones are no easier to read.
_WIDEST_CHART = 120


def build_document(study: Study) -> list[Section]:
    """Return the whole document, except charts."""
    of_rooflines = [section for each in study.rooflines for section in (roofs(each), points(each, study))]
    return [head(study), *of_rooflines, *warnings(study)]


def print_study(console: Console, study: Study) -> None:
    """Print the document as wide as the console, with a chart of each device."""
    print_sections(console, [head(study)])
    for roofline in study.rooflines:
        print_sections(console, [roofs(roofline)])
        chart = draw_roofline(roofline, min(console.width, _WIDEST_CHART))
        if chart:
            console.print(Text.from_ansi(chart))
            console.print(Text(f"{LEGEND}\n", style="dim"))
        print_sections(console, [points(roofline, study)])
    print_sections(console, warnings(study))


def head(study: Study) -> Section:
    """Return the answer."""
    devices = dict.fromkeys(roofline.device for roofline in study.rooflines)
    text = answer(study, len(find_errors(study)), len(find_caveats(study)))
    return Section(heading=f"Roofline: {' · '.join(devices)}", parts=(text,))


def roofs(roofline: Roofline) -> Section:
    """Return the roofs of a device and their sources."""
    arithmetics = used_arithmetics(roofline)
    measured = roofs_of(roofline.measured, arithmetics) or "none"
    stated = roofs_of(roofline.datasheet, arithmetics) or "not known"
    return Section(
        heading=roofline.device,
        parts=(f"Roofs measured{_describe_origin(roofline)}: {measured}. Datasheet: {stated}.",),
    )


def points(roofline: Roofline, study: Study) -> Section:
    """Return the points below the roofs of a device; the last one of a study explains its columns."""
    legend = (_LEGEND,) if roofline is study.rooflines[-1] else ()
    return Section(
        heading=f"{roofline.device}: achieved by runs",
        parts=(_points_grid(roofline, study), _details_grid(roofline), *legend),
    )


def warnings(study: Study) -> Iterator[Section]:
    """Yield the errors and the warnings; nothing without any."""
    yield from caveat_sections(find_errors(study), heading="Errors")
    yield from caveat_sections(find_caveats(study))


_LEGEND = (
    "Medians over runs; FLOP/s are FLOPs by the mean time of a measured step, idle time of the device included. "
    "% of roof: of the lesser of peak and bandwidth × FLOP/byte, measured and as the datasheet has it. MFU: model "
    "FLOPs by time, of the peak of their arithmetic alone. Side: of the measured ridge, else of the datasheet's. "
    "FLOPs: of the model by formula, or executed as ncu counted them in one step. Bytes: counted by ncu in one step; "
    "≈ sampled by GPM or DCGM, as a share of the datasheet's bandwidth; ≥ at least so many, by formula."
)


def _describe_origin(roofline: Roofline) -> str:
    ceilings = roofline.ceilings
    if ceilings is None:
        return ""
    return f" by run {ceilings.run.run_id} on {ceilings.run.nodes or 'an unknown node'} ({NEARNESS[ceilings.nearness]})"


def _points_grid(roofline: Roofline, study: Study) -> Grid:
    header = ("", "runs of", "n", "FLOP/byte", "achieved", "% of roof", "datasheet", "side")
    rows = (
        (
            mark,
            label(placed.point, study),
            str(len(placed.point.trials)),
            intensity_of(placed.point) or ABSENT,
            notation([placed.point.flops_per_second], "FLOP/s").write(placed.point.flops_per_second),
            _percent_of_roof(placed.point, placed.measured),
            _percent_of_roof(placed.point, placed.datasheet),
            side_of(placed) or ABSENT,
        )
        for mark, placed in marked(roofline)
    )
    return Grid(header=header, rows=tuple(rows), figures_from=2)


def _details_grid(roofline: Roofline) -> Grid:
    header = ("", "arithmetic", "FLOPs", "bytes", "step", "busy", "MFU", "datasheet")
    rows = (
        (
            mark,
            arithmetic_of(placed.point.mix) or ABSENT,
            f"{notation([placed.point.flops], 'FLOP').write(placed.point.flops)} {_FLOPS_BY[placed.point.flops_by]}",
            _bytes(placed.point),
            notation([placed.point.seconds], "seconds").write(placed.point.seconds),
            _percent(placed.point.busy_percent),
            _percent(placed.measured.mfu_percent),
            _percent(placed.datasheet.mfu_percent),
        )
        for mark, placed in marked(roofline)
    )
    return Grid(header=header, rows=tuple(rows), figures_from=4)


def side_of(placed: Placed) -> str | None:
    """Return the side of the measured ridge, else of the datasheet's, on which a point is; None: unknown."""
    side = placed.measured.side or placed.datasheet.side
    return side.value if side else None


def _percent_of_roof(point: Point, standing: RoofShares) -> str:
    if standing.roof_percent is None:
        return ABSENT
    return f"{'≥ ' if point.traffic_by is Traffic.LEAST else ''}{significant(standing.roof_percent)} %"


def _percent(value: float | None) -> str:
    return ABSENT if value is None else f"{significant(value)} %"


def _bytes(point: Point) -> str:
    if point.traffic_bytes is None or point.traffic_by is None:
        return ABSENT
    amount = notation([point.traffic_bytes], "bytes").write(point.traffic_bytes)
    return f"{_BYTES_BY[point.traffic_by]}{amount}"


_FLOPS_BY = {Flops.EXECUTED: "ncu", Flops.MODEL: "model"}
_BYTES_BY = {Traffic.COUNTED: "", Traffic.SAMPLED: "≈ ", Traffic.LEAST: "≥ "}


def render(study: Study) -> Rendering:
    """Return the forms of a roofline: CSV has a line for each point; only the terminal has charts."""
    return Rendering(
        sections=partial(build_document, study),
        record=partial(_record, study),
        lines=partial(_lines, study),
        show=lambda console: print_study(console, study),
    )


def _record(study: Study) -> dict[str, Any]:
    errors, caveats = find_errors(study), find_caveats(study)
    return {
        "answer": answer(study, len(errors), len(caveats)),
        "by": study.facet.name,
        "rooflines": [
            {
                "device": each.device,
                "measured": asdict(each.measured),
                "ceilings_run": each.ceilings.run.run_id if each.ceilings else None,
                "ceilings_of": each.ceilings.nearness.name.lower() if each.ceilings else None,
                "datasheet": asdict(each.datasheet),
                "points": [
                    {"mark": mark, **_point(placed), "runs": [trial.run.run_id for trial in placed.point.trials]}
                    for mark, placed in marked(each)
                ],
            }
            for each in study.rooflines
        ],
        "left_out": [run.run_id for run in study.without_figures],
        "unsuccessful": [run.run_id for run in study.unsuccessful],
        "cancelled": [run.run_id for run in study.cancelled],
        "errors": [asdict(error) for error in errors],
        "warnings": [asdict(caveat) for caveat in caveats],
    }


def _point(placed: Placed) -> dict[str, Any]:
    point = placed.point
    return {
        **asdict(point.group),
        "parameters": json.loads(point.group.parameters),
        "n": len(point.trials),
        "step_seconds": point.seconds,
        "flops": point.flops,
        "flops_by": point.flops_by.value,
        "model_flops": point.model_flops,
        "arithmetic": dict(point.mix),
        "bytes": point.traffic_bytes,
        "bytes_by": point.traffic_by.value if point.traffic_by else None,
        "flops_per_byte": point.intensity,
        "flops_per_second": point.flops_per_second,
        "gpu_busy_percent": point.busy_percent,
        **_share_fields("measured", placed.measured),
        **_share_fields("datasheet", placed.datasheet),
    }


def _share_fields(source: str, standing: RoofShares) -> dict[str, Any]:
    return {
        f"{source}_roof_percent": standing.roof_percent,
        f"{source}_mfu_percent": standing.mfu_percent,
        f"{source}_side": standing.side.value if standing.side else None,
    }


def _lines(study: Study) -> Iterator[dict[str, Any]]:
    for roofline in study.rooflines:
        for placed in roofline.placed:
            yield {**_point(placed), "ceilings_run": roofline.ceilings.run.run_id if roofline.ceilings else None}
