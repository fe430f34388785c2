"""Points of `memory-limit`: time of a step by the share of convolutions, or by the share of layers on the first GPU."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.lines import Line2D

from gpuagent_collector.compare.matrix import Selection, label_row
from gpuagent_collector.plot.picture import Picture
from gpuagent_collector.plot.style import line_style
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.data import Run
from gpuagent_common.errors import GpuAgentError

WORKLOAD = "memory-limit"

_PANEL_MM = {True: 42.0, False: 36.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """One stack of layers that was tried.

    Attributes:
        percent: of its layers, the share of convolutions; where it is split, the share on the first GPU.
        milliseconds: of a step; None: it was not timed, or did not fit.
    """

    percent: float
    layers: float
    milliseconds: float | None


def draw_split(ask: Ask, chosen: Selection, width_mm: float) -> Picture:
    """Return the time of a step, and the layers that fit, by the share of layers.

    Raises:
        GpuAgentError: no run reports such points.
    """
    layout = chosen.layout
    runs: dict[str, list[Run]] = defaultdict(list)
    for block in layout.blocks:
        for cell in block.cells:
            name = cell.side if len(layout.blocks) == 1 else f"{label_row(block, layout)} · {cell.side}"
            runs[name] += cell.runs
    results = _read(ask, [run.run_id for of_one in runs.values() for run in of_one])
    found = {name: _points([results[run.run_id] for run in of_one]) for name, of_one in runs.items()}
    found = {name: points for name, points in found.items() if points}
    if not found:
        raise GpuAgentError(f"no run reports points of layers; run: gpuagent run {WORKLOAD} --ratios 3:1,1:1,1:3")
    is_split = any("split" in result and result["split"] > 1 for result in results.values())
    what = "layers on the first GPU" if is_split else "convolutions among the layers"
    picture = Picture(
        width_mm=width_mm, note=f"Each point is the largest stack that fits, or one that was asked for: {what}."
    )
    styles = [line_style(index) for index in range(len(found))]
    picture.legend = [
        (Line2D([], [], **style), f"{name} (n = {len(runs[name])})") for style, name in zip(styles, found, strict=True)
    ]
    upper, lower = picture.panels([_PANEL_MM[picture.is_wide]] * 2, sharex=True)
    for style, points in zip(styles, found.values(), strict=True):
        timed = [(point.percent, point.milliseconds) for point in points if point.milliseconds is not None]
        if timed:
            upper.plot(*zip(*timed, strict=True), **style)
        lower.plot([point.percent for point in points], [point.layers for point in points], **style)
    upper.set_ylabel("step (ms)")
    lower.set_ylabel("layers")
    lower.set_xlabel(f"{what} (%)")
    lower.set_xlim(-4, 104)
    for axes in (upper, lower):
        axes.set_ylim(0, 1.1 * axes.dataLim.y1)
        axes.grid()
    return picture


def _read(ask: Ask, run_ids: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
    results: dict[str, dict[str, float]] = defaultdict(dict)
    for row in ask(_RESULTS, [list(run_ids)]):
        results[row["run_id"]][row["name"]] = row["value"]
    return results


def _points(runs: Sequence[Mapping[str, float]]) -> list[_Point]:
    found = []
    for results in runs:
        is_split = results.get("split", 1) > 1
        for name in results:
            prefix = name.removesuffix("_conv_layers")
            conv, fc = results.get(f"{prefix}_conv_layers"), results.get(f"{prefix}_fc_layers")
            # Of a split stack, the parts and the frontiers of single GPUs have names of the same form.
            if prefix == name or conv is None or fc is None or not conv + fc or "gpu" in prefix:
                continue
            part = conv
            if is_split:
                part = results.get(f"{prefix}_gpu0_conv_layers", 0) + results.get(f"{prefix}_gpu0_fc_layers", 0)
            seconds = results.get(f"{prefix}_step_seconds")
            found.append(
                _Point(
                    percent=100 * part / (conv + fc),
                    layers=conv + fc,
                    milliseconds=None if seconds is None else 1000 * seconds,
                )
            )
    return sorted(found, key=lambda point: point.percent)


_RESULTS = """
SELECT run_id, name, arg_max(value, time) AS value FROM results
WHERE (name = 'split' OR name LIKE '%_layers' OR name LIKE '%_step_seconds') AND value IS NOT NULL
    AND run_id IN (SELECT unnest(CAST(? AS VARCHAR[])))
GROUP BY ALL"""
