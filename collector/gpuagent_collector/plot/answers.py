"""Figures of answers: the panels of their chapters in a report, and what a reader of print needs beside them."""

from collections.abc import Iterable
from dataclasses import replace

from gpuagent_collector.answers import roofline, scaling_curves, serving
from gpuagent_collector.answers.roofline_points import Traffic
from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.compare.matrix import Selection, label_row
from gpuagent_collector.plot.panels import draw_panels
from gpuagent_collector.plot.picture import Picture, write_counts
from gpuagent_collector.present.panel import Look
from gpuagent_collector.recommend.ranking import rank
from gpuagent_collector.report.figures.because import because_panel
from gpuagent_collector.report.figures.frontier import frontier_panels
from gpuagent_collector.report.figures.rooflines import number_points, roofline_panel
from gpuagent_collector.report.figures.scaling import MOST_CURVES, scaling_panel
from gpuagent_collector.report.figures.serving import MOST_LINES, serving_panels
from gpuagent_collector.runs.cells import tell_apart
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.text import counted

_MOST_PANELS = 24


def draw_because(comparison: Comparison, width_mm: float) -> Picture:
    """Return the parts of each shown difference.

    Raises:
        GpuAgentError: no difference is shown of which the parts are known.
    """
    reasons = comparison.reasons[:_MOST_PANELS]
    if not reasons:
        raise GpuAgentError(
            "no parts to draw: no difference is shown whose parts are known; `collector compare` says what is"
        )
    panels = []
    for because in reasons:
        name = tell_apart(because.block, comparison.layout.blocks)
        panels.append(replace(because_panel(because, comparison.layout.sides), title=f"{name}: per {because.of}"))
    runs = _runs(len(each.block.cell(side).runs) for each in reasons for side in (each.baseline, each.side))
    sums = "each part begins where the one before it ends, and they sum to the difference"
    return draw_panels(panels, f"Medians of runs; {sums}. {runs}.", width_mm)


def draw_frontier(chosen: Selection, width_mm: float, *, delta: float) -> Picture:
    """Return a panel for each block and each thing but time that its runs have a figure of.

    Raises:
        GpuAgentError: no run has both a time and something else.
    """
    layout, facts = chosen.layout, chosen.facts
    found = []
    for block in layout.blocks:
        ranked = rank([block], facts, {"time": 1.0}, delta=delta, alpha=0.05 / layout.looks)
        standings = ranked[0].standings if ranked else ()
        efficient = [standing.side for standing in standings if standing.is_efficient]
        title = label_row(block, layout) if len(layout.blocks) > 1 else ""
        found += [replace(panel, title=title) for panel in frontier_panels(block, facts, layout.sides, efficient)]
    if not found:
        raise GpuAgentError("no frontier to draw: no run has energy or cost; give --prices, or sample the GPUs' power")
    panels = found[:_MOST_PANELS]
    series = [each for panel in panels for each in panel.series]
    is_joined = any(each.look is Look.BROKEN for each in series)
    line = "The broken line joins sides that no other is shown to beat. " if is_joined else ""
    marks = "Each run is a small mark, the median of a side a large one; down and to the left is better."
    runs = _runs(len(each.xs) for each in series if each.look is Look.SMALL)
    note = f"{marks} {line}{runs}.{_rest(len(panels), len(found), 'panels')}"
    return draw_panels(panels, note, width_mm, columns=2 if panels[1:] else 1)


def draw_rooflines(study: roofline.Study, width_mm: float) -> Picture:
    """Return a panel for each device that has roofs.

    Raises:
        GpuAgentError: there is no roof.
    """
    known = [one for one in study.rooflines if one.corners]
    if not known:
        raise GpuAgentError(
            "no roofline to draw: run `gpuagent run ceilings` on the device; `collector roofline` has more"
        )
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


def draw_serving(study: serving.Study, width_mm: float) -> Picture:
    """Return two kinds of latency by tokens a second; numbers are loads.

    Raises:
        GpuAgentError: no server reports a latency and its tokens a second.
    """
    lines = study.lines[:MOST_LINES]
    panels = [replace(panel, title="") for panel in serving_panels(study)]
    if not panels:
        raise GpuAgentError("no latency to draw: no run reports it with the tokens a second; see `collector serving`")
    has_interval = any(each.up for panel in panels for each in panel.series)
    medians = "Medians over runs" + ", with 95 % intervals" * has_interval
    units = dict.fromkeys(serving.LOADS[curve.load] for curve in study.curves)
    runs = write_counts(point.runs for curve, side in lines for point in curve.points[side] if point.runs)
    limits = dict.fromkeys(serving.write_limits(curve) for curve in study.curves if curve.limits.milliseconds)
    note = f"{medians}; a number is the load in {' or '.join(units)}. n = {runs} runs a point."
    note += "".join(f" Dotted: the limit, {words}." for words in limits)
    return draw_panels(panels, note, width_mm, columns=2)


def _runs(numbers: Iterable[int]) -> str:
    counts = set(numbers)
    return f"n = {write_counts(counts)}{' runs' if len(counts) > 1 else ''}"


def _rest(shown: int, number: int, what: str) -> str:
    return f" The first {shown} of {number} {what}." if shown < number else ""
