"""Figures of answers: the panels of their chapters in a report, and what a reader of print needs beside them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from gpuagent_collector.answers import roofline, scaling_curves, serving_curves
from gpuagent_collector.answers.roofline_points import Traffic
from gpuagent_collector.compare.because import Because
from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.compare.document import find_next
from gpuagent_collector.compare.matrix import Selection, label_row
from gpuagent_collector.compare.parts import because_panels, say_undivided
from gpuagent_collector.plot.picture import (
    QUIET,
    WIDE_MM,
    Picture,
    characters,
    color,
    fold,
    in_bars,
    line_style,
    marker,
    points,
    write_counts,
)
from gpuagent_collector.present.human import change
from gpuagent_collector.present.panel import Axis, Look, Panel, Place, Row, Series
from gpuagent_collector.prices.runs import why_unpriced
from gpuagent_collector.recommend.ranking import rank
from gpuagent_collector.report.figures.frontier import frontier_panels
from gpuagent_collector.report.figures.rooflines import number_points, roofline_panel
from gpuagent_collector.report.figures.scaling import MOST_CURVES, scaling_panel
from gpuagent_collector.report.figures.serving import MOST_LINES, serving_panels
from gpuagent_collector.runs.cells import Layout, tell_apart
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.text import counted, harmless

# Millimetres of a pixel of the page, where a figure spans two columns or one.
_MM_PER_PIXEL = {True: 0.18, False: 0.15}
_STYLES: dict[Look, dict[str, Any]] = {
    Look.POINTS: {"ls": "none", "ms": 5},
    Look.SMALL: {"ls": "none", "ms": 2.5, "alpha": 0.55, "mew": 0},
    Look.LARGE: {"ls": "none", "ms": 6, "mec": "white", "mew": 0.6, "zorder": 3},
    Look.SOLID: {"ls": "-", "lw": 1.0, "zorder": 1},
    Look.BROKEN: {"ls": (0, (4, 2)), "lw": 0.9, "zorder": 1},
    Look.DOTTED: {"ls": (0, (1, 1.5)), "lw": 1.0, "zorder": 1},
}
# Of a row of bars, by the lines of its name.
_ROW_MM = {1: 4.6, 2: 7.2}
_ALIGNED = {Place.LEFT: (-2, "right"), Place.CENTER: (0, "center"), Place.RIGHT: (3, "left")}


def draw_panels(panels: Sequence[Panel], note: str, width_mm: float, *, columns: int = 1) -> Picture:
    """Return the panels in as many columns as are wished for, in a narrow figure in one, and a legend of all series.

    Raises GpuAgentError: the figure would be too large to draw.
    """
    picture = Picture(width_mm=width_mm, note=note)
    named = {series.name: series for panel in panels for series in reversed(panel.series) if series.name}
    for name, series in sorted(named.items(), key=lambda each: (each[1].index is None, each[1].index)):
        picture.name_line(name, **_style(series))
    parts = {bar.part: bar for panel in panels for row in panel.rows for bar in row.bars if bar.part}
    picture.legend += [
        (Patch(facecolor=color(bar.index or 0), **in_bars(bar.hatch)), name) for name, bar in parts.items()
    ]
    columns = columns if picture.is_wide else 1
    heights = [_height(panel, width_mm) for panel in panels]
    axes = picture.grid(len(panels), max(heights), columns) if columns > 1 else picture.panels(heights)
    for one, panel in zip(axes, panels, strict=True):
        one.set_title(harmless(panel.title))
        for series in panel.series:
            _draw_series(one, series)
        _set_axis(one, "x", panel.x)
        if panel.rows:
            _draw_rows(one, panel.rows, width_mm)
        else:
            _set_axis(one, "y", panel.y)
            one.minorticks_off()
        one.grid(axis="x" if panel.rows else "both")
    return picture


def _name_rows(rows: Sequence[Row], width_mm: float) -> list[str]:
    return fold([row.name for row in rows], characters(width_mm / 3, points(width_mm)))


def _height(panel: Panel, width_mm: float) -> float:
    """Return the millimetres of a panel, of rows by the lines of their names."""
    lines = max((name.count("\n") + 1 for name in _name_rows(panel.rows, width_mm)), default=0)
    return _ROW_MM[lines] * len(panel.rows) if lines else panel.height * _MM_PER_PIXEL[width_mm >= WIDE_MM]


def _draw_rows(axes: Axes, rows: Sequence[Row], width_mm: float) -> None:
    for place, row in enumerate(rows):
        for bar in row.bars:
            shade = QUIET if bar.index is None else color(bar.index)
            style = in_bars(bar.hatch) if bar.part else {"edgecolor": shade}
            inside = "white" if bar.is_hollow else shade
            axes.barh(place, bar.end - bar.begin, left=bar.begin, color=inside, height=0.7, **style)
        axes.annotate(row.text, (row.end, place), (3, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(rows)), _name_rows(rows, width_mm))
    axes.set_ylim(len(rows) - 0.4, -0.6)


def _style(series: Series) -> dict[str, Any]:
    index, look = series.index, series.look
    if index is None:
        return {"color": "black" if look is Look.SOLID else QUIET, **_STYLES[look]}
    if look is Look.CURVE:
        return line_style(index)
    shape = {} if look is Look.DOTTED else {"marker": marker(index)}
    return {"color": color(index), **shape, **_STYLES[look]}


def _draw_series(axes: Axes, series: Series) -> None:
    if series.look is not Look.NOTHING:
        axes.plot(series.xs, series.ys, **_style(series))
    if series.up:
        ends = [series.down, series.up]
        axes.errorbar(series.xs, series.ys, yerr=ends, fmt="none", ecolor=color(series.index or 0), elinewidth=0.9)
    across, aligned = _ALIGNED[series.place]
    shade = "black" if series.place is Place.CENTER else QUIET
    words: dict[str, Any] = {"textcoords": "offset points", "ha": aligned, "va": "bottom", "color": shade}
    for x, y, text in zip(series.xs, series.ys, series.labels, strict=False):
        axes.annotate(harmless(text), (x, y), (across, 3), **words)


def _set_axis(axes: Axes, which: str, axis: Axis) -> None:
    own = getattr(axes, f"{which}axis")
    axes.set(**{f"{which}label": harmless(axis.label), f"{which}scale": "log" if axis.is_logarithmic else "linear"})
    if axis.ticks:
        own.set_ticks(axis.ticks, axis.names)
    if axis.ends:
        axes.set(**{f"{which}lim": axis.ends})


_MOST_PANELS = 24
# Of a title, beside the names of the bars.
_CHARACTERS_PER_MM = 0.45
# Of a page's height, what panels have with their titles and axes, and of each these.
_PAGE_MM, _AROUND_MM = 226.0, 14.0


def draw_because(comparison: Comparison, width_mm: float) -> Picture:
    """Return the parts of each shown difference, as far as a page has room.

    Raises GpuAgentError: no difference is shown of which the parts are known.
    """
    layout = comparison.layout
    undivided = say_undivided(comparison)
    if not comparison.reasons:
        if undivided:
            raise GpuAgentError(undivided)
        # All together may show one all the same.
        of_one = " of any one setting" if comparison.figures.differs and len(layout.blocks) > 1 else ""
        nothing = f"no difference by {layout.facet.spoken}{of_one} is shown, so it has no parts to draw"
        raise GpuAgentError(f"{nothing}; next: `{find_next(comparison)}`")
    found = list(because_panels(comparison.reasons, layout.sides))
    ends = accumulate(_height(panel, width_mm) + _AROUND_MM for panel, _ in found)
    number = max(1, sum(end <= _PAGE_MM for end in ends))
    drawn = [each for _, reasons in found[:number] for each in reasons]
    most = int(_CHARACTERS_PER_MM * width_mm)
    panels = [replace(panel, title=_title(reasons, layout, most)) for panel, reasons in found[:number]]
    runs = _runs(len(each.block.cell(side).runs) for each in drawn for side in (each.baseline, each.side))
    kinds = {bool(row.bars[0].part) for panel in panels for row in panel.rows}
    sums = "; ".join(words for is_stack, words in _SUMS.items() if is_stack in kinds)
    picture = draw_panels(panels, f"Medians of runs; {sums}. {runs}.", width_mm)
    rest = f"not drawn: {len(found) - number} of {len(found)} panels, for which a page has no room"
    left_out = f"{rest}; name a workload or two sides" if found[number:] else ""
    picture.said = "\n".join(filter(None, (undivided, left_out)))
    return picture


# What sums to what, where there are stacks, and where there are waterfalls.
_SUMS = {
    True: "the parts of a bar sum to it",
    False: "each part begins where the one before it ends, hollow ones take away, and all sum to the difference",
}


def _title(reasons: Sequence[Because], layout: Layout, most: int) -> str:
    """Return what a panel's bars are, of a single difference with its reason where there is room."""
    because = reasons[0]
    name = tell_apart(because.block, layout.blocks)
    title = f"{name}: {because.what} per {because.of}"
    before, after = because.medians
    if reasons[1:] or not before > 0 < after or not because.words:
        return title
    more = "as much" if after >= 2 * before else "more" if after > before else "less"
    needs = f"needs {change(after / before).lstrip('+−')} {more} per {because.of}"
    sentence = f"{name}: {layout.facet.name_side(because.side)} {needs}, because {because.words}"
    return sentence if len(sentence) <= most else title


def draw_frontier(chosen: Selection, width_mm: float, *, delta: float) -> Picture:
    """Return a panel for each block and each thing but time that its runs have a figure of.

    A block of one side alone offers no choice: it is named, and only drawn where there are no others.

    Raises GpuAgentError: no run has both a time and something else.
    """
    layout, facts = chosen.layout, chosen.facts
    sides = {id(block): [cell.side for cell in block.cells if cell.runs] for block in layout.blocks}
    alone = [block for block in layout.blocks if len(sides[id(block)]) == 1 < len(layout.sides)]
    names = {id(block): label_row(block, layout) if len(layout.blocks) > 1 else "" for block in layout.blocks}
    names |= {id(block): f"{names[id(block)]} (only {layout.facet.where(*sides[id(block)])})" for block in alone}
    found: list[Panel] = []
    for block in [block for block in layout.blocks if block not in alone] or layout.blocks:
        ranked = rank([block], facts, {"time": 1.0}, delta=delta, alpha=0.05 / layout.looks)
        standings = ranked[0].standings if ranked else ()
        efficient = [standing.side for standing in standings if standing.is_efficient]
        of_block = frontier_panels(block, facts, layout.sides, efficient)
        found += [replace(panel, title=names[id(block)]) for panel in of_block]
    if not found:
        why = why_unpriced(facts) or "no run has energy or cost; give --prices, or sample the GPUs' power"
        raise GpuAgentError(f"no frontier to draw: {why}")
    panels = found[:_MOST_PANELS]
    series = [each for panel in panels for each in panel.series]
    is_joined = any(each.look is Look.BROKEN for each in series)
    line = "The broken line joins sides that no other is shown to beat. " if is_joined else ""
    marks = "Each run is a small mark, the median of a side a large one; down and to the left is better."
    runs = _runs(len(each.xs) for each in series if each.look is Look.SMALL)
    note = f"{marks} {line}{runs}.{_rest(len(panels), len(found), 'panels')}"
    said = ""
    if len(alone) == len(layout.blocks):
        said = "No two sides ran the same settings, so nothing is compared."
    elif alone:
        said = f"Not drawn, as only one side ran each: {', '.join(names[id(block)] for block in alone)}."
    drawn = {each.name for each in series}
    if undrawn := [side for side in layout.sides if side not in drawn and facts.unpriced]:
        said = f"{said} Not drawn: {', '.join(undrawn)}, as {why_unpriced(facts)}.".lstrip()
    picture = draw_panels(panels, f"{note} {said}".rstrip(), width_mm, columns=2 if panels[1:] else 1)
    picture.said = said
    return picture


def draw_rooflines(study: roofline.Study, width_mm: float) -> Picture:
    """Return a panel for each device that has roofs. Raises GpuAgentError: there is no roof."""
    known = [one for one in study.rooflines if one.corners]
    if not known:
        raise GpuAgentError("no roofline to draw: `collector roofline` says what measures one")
    drawn = [point for one in known for point in one.points]
    hidden = sum(len(one.points) for one in study.rooflines) - len(drawn)
    notes = ["Points are medians over runs."]
    if any(point.traffic_by is Traffic.LEAST for point in drawn):
        notes.append("←: at most so far right, as only the least traffic is known.")
    notes += [f"Wrong: {caveat.text}." for caveat in roofline.find_errors(study)]
    if any(point.intensity is None for point in drawn):
        notes.append("Dotted: the traffic is unknown, and so the place from left to right.")
    if hidden:
        notes.append(f"Not drawn: {counted(hidden, 'point')} of devices without roofs.")
    indexes = number_points(known, list(dict.fromkeys(point.run.side or "" for point in drawn)))
    panels = [roofline_panel(one, indexes, is_only=not known[1:]) for one in known]
    return draw_panels(
        [replace(panel, title=one.device) for panel, one in zip(panels, known, strict=True)], " ".join(notes), width_mm
    )


def draw_scaling(study: scaling_curves.Study, width_mm: float) -> Picture:
    """Return the speed-up of each curve by its ranks, with 95 % intervals."""
    panel = scaling_panel(study)
    curves = study.curves[:MOST_CURVES]
    has_interval = any(each.up for each in panel.series)
    intervals = "with 95 % intervals (Hodges and Lehmann)" if has_interval else "too few runs for intervals"
    runs = _runs(len(row.row.trials) for curve in curves for row in curve.rows if row.row.trials)
    note = f"Ratios of throughput to that of the fewest ranks, {intervals}; {runs} a point."
    return draw_panels([replace(panel, title="")], note + _rest(len(curves), len(study.curves), "curves"), width_mm)


def draw_serving(study: serving_curves.Study, width_mm: float) -> Picture:
    """Return two kinds of latency by tokens a second; numbers are loads.

    Raises GpuAgentError: no server reports a latency and its tokens a second.
    """
    lines = study.lines[:MOST_LINES]
    panels = [replace(panel, title="") for panel in serving_panels(study)]
    if not panels:
        raise GpuAgentError("no latency to draw: no run reports it with the tokens a second; see `collector serving`")
    has_interval = any(each.up for panel in panels for each in panel.series)
    medians = "Medians over runs" + ", with 95 % intervals" * has_interval
    units = dict.fromkeys(serving_curves.LOADS[curve.load] for curve in study.curves)
    runs = write_counts(point.runs for curve, side in lines for point in curve.points[side] if point.runs)
    limits = dict.fromkeys(
        serving_curves.write_limits(curve.limits) for curve in study.curves if curve.limits.milliseconds
    )
    note = f"{medians}; a number is the load in {' or '.join(units)}. n = {runs} runs a point."
    note += "".join(f" Dotted: the limit, {words}." for words in limits)
    return draw_panels(panels, note, width_mm, columns=2)


def _runs(numbers: Iterable[int]) -> str:
    counts = set(numbers)
    return f"n = {write_counts(counts)}{' runs' if len(counts) > 1 else ''}"


def _rest(shown: int, number: int, what: str) -> str:
    return f" The first {shown} of {number} {what}." if shown < number else ""
