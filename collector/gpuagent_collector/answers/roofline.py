"""`collector roofline`: what bounds a run, beside the limits of its device."""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from math import ceil, floor, log10
from typing import Any

import plotext

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
    study_roofline,
    used_arithmetics,
)
from gpuagent_collector.present.answer import Answer, Section, caveat_sections, in_short, read_warnings
from gpuagent_collector.present.chart import Chart
from gpuagent_collector.present.human import in_unit, notation, significant
from gpuagent_collector.present.table import Column, Table
from gpuagent_collector.query.ask import Ask

_MARKS = "━ measured roofs  · datasheet  a point  ←a at most so far right (bytes ≥ …)"

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


def answer_roofline(ask: Ask, **asked: Any) -> Answer:
    """Answer the command; `asked` as for `study_roofline`. It fails for a point above the device's limit."""
    return render(study_roofline(ask, **asked))


def render(study: Study) -> Answer:
    """Return the answer; CSV has a line for each point, and only the terminal has these charts."""
    errors, caveats = find_errors(study), find_caveats(study)
    sections = []
    for roofline in study.rooflines:
        rows = _rows(roofline)
        legend = [_LEGEND] if roofline is study.rooflines[-1] else []
        sections += [
            Section(roofline.device, [_roofs(roofline), Chart(draw=partial(_draw, roofline), below=[_MARKS, ""])]),
            Section(f"{roofline.device}: achieved by runs", [_points(rows, study), Table(_DETAILS, rows), *legend]),
        ]
    return Answer(
        heading=f"Roofline: {' · '.join(dict.fromkeys(roofline.device for roofline in study.rooflines))}",
        text=answer(study, len(errors), len(caveats)),
        sections=[*sections, *caveat_sections(errors, heading="Errors")],
        caveats=caveats,
        facts={
            "by": study.facet.name,
            "rooflines": [
                {
                    "device": each.device,
                    "measured": each.measured,
                    "ceilings_run": each.ceilings.run.run_id if each.ceilings else None,
                    "ceilings_of": each.ceilings.nearness.name.lower() if each.ceilings else None,
                    "datasheet": each.datasheet,
                    "points": Table((Column("mark"), *_DATA, _RUNS), _rows(each)),
                }
                for each in study.rooflines
            ],
            "left_out": [run.run_id for run in study.without_figures],
            "unsuccessful": [run.run_id for run in study.unsuccessful],
            "cancelled": [run.run_id for run in study.cancelled],
            "errors": errors,
        },
        failed=bool(errors),
        csv=[Table((*_DATA, _CEILINGS), _rows(each)) for each in study.rooflines],
    )


def _rows(roofline: Roofline) -> list[dict[str, Any]]:
    return [{"mark": mark, "placed": placed, "roofline": roofline} for mark, placed in marked(roofline)]


def _draw(roofline: Roofline, width: int) -> list[str]:
    drawing = draw_roofline(roofline, min(width, _WIDEST_CHART))
    return [drawing] if drawing else []


def _roofs(roofline: Roofline) -> str:
    """Return the roofs of a device and their sources."""
    arithmetics = used_arithmetics(roofline)
    measured = roofs_of(roofline.measured, arithmetics) or "none"
    stated = roofs_of(roofline.datasheet, arithmetics) or "not known"
    return f"Roofs measured{_describe_origin(roofline)}: {measured}. Datasheet: {stated}."


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


def _points(rows: Sequence[dict[str, Any]], study: Study) -> Table:
    columns = (
        Column(None, "", "mark", left=True),
        Column(None, "runs of", lambda row: label(row["placed"].point, study), left=True),
        Column(None, "n", lambda row: len(row["placed"].point.trials)),
        Column(None, "FLOP/byte", lambda row: intensity_of(row["placed"].point) or None),
        Column(None, "achieved", "placed.point.flops_per_second", show=in_unit("FLOP/s")),
        Column(None, "% of roof", lambda row: _of_roof(row["placed"], row["placed"].measured)),
        Column(None, "datasheet", lambda row: _of_roof(row["placed"], row["placed"].datasheet)),
        Column(None, "side", lambda row: row["placed"].measured.side or row["placed"].datasheet.side),
    )
    return Table(columns, rows)


def _of_roof(placed: Placed, standing: RoofShares) -> str | None:
    if standing.roof_percent is None:
        return None
    return f"{'≥ ' if placed.point.traffic_by is Traffic.LEAST else ''}{significant(standing.roof_percent)} %"


def _flops(row: dict[str, Any]) -> str:
    point: Point = row["placed"].point
    return f"{in_unit('FLOP')(point.flops)} {_FLOPS_BY[point.flops_by]}"


def _bytes(row: dict[str, Any]) -> str | None:
    point: Point = row["placed"].point
    if point.traffic_bytes is None or point.traffic_by is None:
        return None
    return f"{_BYTES_BY[point.traffic_by]}{in_unit('bytes')(point.traffic_bytes)}"


_FLOPS_BY = {Flops.EXECUTED: "ncu", Flops.MODEL: "model"}
_BYTES_BY = {Traffic.COUNTED: "", Traffic.SAMPLED: "≈ ", Traffic.LEAST: "≥ "}
_PERCENT = in_unit("percent")
_DETAILS = (
    Column(None, "", "mark", left=True),
    Column(None, "arithmetic", lambda row: arithmetic_of(row["placed"].point.mix) or None, left=True),
    Column(None, "FLOPs", _flops, left=True),
    Column(None, "bytes", _bytes, left=True),
    Column(None, "step", "placed.point.seconds", show=in_unit("seconds")),
    Column(None, "busy", "placed.point.busy_percent", show=_PERCENT),
    Column(None, "MFU", "placed.measured.mfu_percent", show=_PERCENT),
    Column(None, "datasheet", "placed.datasheet.mfu_percent", show=_PERCENT),
)

_GROUP = ("workload", "side", "platform", "environment", "image", "interference", "limits", "device")
# Key → path in the point.
_POINT = {
    "step_seconds": "seconds",
    "flops": "flops",
    "flops_by": "flops_by",
    "model_flops": "model_flops",
    "arithmetic": "mix",
    "bytes": "traffic_bytes",
    "bytes_by": "traffic_by",
    "flops_per_byte": "intensity",
    "flops_per_second": "flops_per_second",
    "gpu_busy_percent": "busy_percent",
}
_DATA = (
    *(Column(name, value=f"placed.point.group.{name}") for name in _GROUP),
    Column("parameters", value=lambda row: json.loads(row["placed"].point.group.parameters)),
    Column("part", value="placed.point.group.part"),
    Column("n", value=lambda row: len(row["placed"].point.trials)),
    *(Column(key, value=f"placed.point.{path}") for key, path in _POINT.items()),
    *(
        Column(f"{source}_{name}", value=f"placed.{source}.{name}")
        for source in ("measured", "datasheet")
        for name in ("roof_percent", "mfu_percent", "side")
    ),
)
_RUNS = Column("runs", value=lambda row: [trial.run.run_id for trial in row["placed"].point.trials])
_CEILINGS = Column("ceilings_run", value="roofline.ceilings.run.run_id")
