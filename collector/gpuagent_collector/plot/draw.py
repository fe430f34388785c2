"""Figures as requested: from what is asked to the kind of figure, and to its data."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from gpuagent_collector.answers import roofline
from gpuagent_collector.answers import scaling_curves as scaling
from gpuagent_collector.answers.scaling import answer as say_scaling
from gpuagent_collector.answers.scaling_curves import By
from gpuagent_collector.answers.serving import answer as say_serving
from gpuagent_collector.answers.serving_curves import choose_study
from gpuagent_collector.choices import WHOLE
from gpuagent_collector.compare.answer import answer as say_comparison
from gpuagent_collector.compare.answer import say_level
from gpuagent_collector.compare.choosing import compare_what_differs, say_choice
from gpuagent_collector.compare.comparison import Request, compare
from gpuagent_collector.compare.matrix import Selection, choose_runs, stats_in, tabulate_runs
from gpuagent_collector.metrics import BY_NAME, hint_at
from gpuagent_collector.plot.answers import draw_because, draw_frontier, draw_rooflines, draw_scaling, draw_serving
from gpuagent_collector.plot.over_time import (
    CURVES,
    MOST_LINES,
    draw_by_step,
    draw_over_time,
    find_charts,
    names_by_step,
)
from gpuagent_collector.plot.picture import Picture, in_style
from gpuagent_collector.plot.rows import draw_bars, draw_dots
from gpuagent_collector.plot.workloads import COLLECTIVES, MEMORY_LIMIT, draw_links, draw_split
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.recommend.answer import answer as say_recommendation
from gpuagent_collector.recommend.study import Request as RecommendRequest
from gpuagent_collector.recommend.study import recommend
from gpuagent_collector.runs.cells import choose_sides
from gpuagent_collector.runs.data import Run
from gpuagent_collector.runs.facets import Facet, find_facet
from gpuagent_collector.runs.find import find_runs
from gpuagent_common.errors import GpuAgentError, MisuseError

# Workloads of which it is said where they run best.
_MOST_SAID = 2


class Kind(Enum):
    """A kind of figure of metrics."""

    DOTS = "dots"
    BARS = "bars"
    TIME = "time"
    STEPS = "steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotRequest:
    """A request for a figure.

    Attributes:
        names: metrics, names that runs report by step, or one of WHOLE.
        kind: of a figure of metrics; None: by what is asked and what there is.
        request: the runs; its facet separates the sides.
        rows: name of the facet that separates rows.
        percent, milliseconds: limits of servers' latency, as for `study_serving`.
    """

    names: tuple[str, ...]
    kind: Kind | None
    request: Request
    rows: str
    width_mm: float
    percent: int | None = None
    milliseconds: Mapping[str, float] = field(default_factory=dict)


def write_plot(ask: Ask, asked: PlotRequest, path: Path) -> Picture:
    """Draw what is asked, and write it into a file whose name ends in its format.

    Raises:
        MisuseError: a metric, facet, value, workload or experiment is unknown.
        GpuAgentError: there is nothing to draw, or the file cannot be written.
    """
    with in_style(asked.width_mm):
        is_whole = len(asked.names) == 1 and asked.names[0] in WHOLE
        picture = _draw_whole(ask, asked) if is_whole else _draw_metrics(ask, asked)
        picture.save(path)
    return picture


def _draw_whole(ask: Ask, asked: PlotRequest) -> Picture:
    name, request, width_mm = asked.names[0], asked.request, asked.width_mm
    if asked.kind:
        raise MisuseError(f"--kind {asked.kind.value} is for metrics; {name} is a kind of its own")
    parts, what, remedy = WHOLE[name]
    if request.each and request.each not in parts:
        raise MisuseError(f"--each {request.each.value} is not for {name}: {what}; {remedy}")
    rows = find_facet(asked.rows)
    match name:
        case "roofline":
            runs = _runs(ask, request)
            found = roofline.study_runs(ask, find_facet(request.by), runs, request.each)
            return _saying(draw_rooflines(found, width_mm), roofline.answer(found, most=1))
        case "scaling":
            by = By.NODES if request.by == "nodes" else By.RANKS
            curves = scaling.study_runs(ask, _runs(ask, request), request.prices, by)
            return _saying(draw_scaling(curves, width_mm), say_scaling(curves, whole=False))
        case "serving":
            study = choose_study(ask, request, percent=asked.percent, milliseconds=asked.milliseconds)
            return _saying(draw_serving(study, width_mm), say_serving(study))
        case "frontier":
            return _draw_frontier(ask, request, rows, width_mm)
        case "because":
            comparison = compare_what_differs(ask, replace(request, series=False))
            picture = draw_because(comparison, width_mm)
            return _saying(picture, f"{say_comparison(comparison, most=1)}\n{picture.said}".strip())
        case "split":
            request = _of_workload(ask, name, request, MEMORY_LIMIT)
            return draw_split(ask, choose_runs(ask, request, rows), width_mm)
    request = _of_workload(ask, name, request, COLLECTIVES)
    return draw_links(ask, choose_runs(ask, request, rows), width_mm)


def _draw_frontier(ask: Ask, request: Request, rows: Facet, width_mm: float) -> Picture:
    chosen = choose_runs(ask, request, rows)
    if len(chosen.layout.sides) == 1:  # the settings of one workload are the choice
        workload = request.workload or chosen.layout.blocks[0].workload
        differing = compare_what_differs(ask, replace(request, workload=workload, series=False)).request
        request = replace(request, workload=workload, by=differing.by, experiment=differing.experiment)
        chosen = choose_runs(ask, request, rows)
    if all(sum(bool(cell.runs) for cell in block.cells) == 1 for block in chosen.layout.blocks):
        # It says which settings differ, and by what to compare instead.
        compare(ask, replace(request, series=False))
    picture = draw_frontier(chosen, width_mm, delta=request.delta)
    return _saying(picture, f"{_recommend(ask, request, chosen)} {picture.said}".strip())


def _of_workload(ask: Ask, name: str, request: Request, workload: str) -> Request:
    """Return the request for runs of the workload that a figure is of. Raises GpuAgentError: there are none."""
    if request.workload:
        return request
    if not any(run.workload == workload for run in find_runs(ask, find_facet("all"), workload=None, experiment=None)):
        raise GpuAgentError(f"{name} draws runs of {workload}, and there are none; make some: gpuagent run {workload}")
    return replace(request, workload=workload)


def _recommend(ask: Ask, request: Request, chosen: Selection) -> str:
    """Return which side of each of the first workloads is best, in words, as far as that is known."""
    said = []
    workloads = list(dict.fromkeys(block.workload for block in chosen.layout.blocks))
    named = {name: getattr(request, name) for name in ("by", "experiment", "where", "prices", "delta")}
    for workload in workloads[:_MOST_SAID]:
        with suppress(GpuAgentError):
            found = recommend(ask, RecommendRequest(workload=workload, **named))
            if {*found.layout.run_ids} <= {*chosen.layout.run_ids}:
                said.append(say_recommendation(found, most=1))
    return " ".join(said)


def _saying(picture: Picture, words: str) -> Picture:
    picture.said = words
    return picture


def _draw_metrics(ask: Ask, asked: PlotRequest) -> Picture:
    # Of single runs those that failed have curves too.
    request = replace(asked.request, every_status=asked.request.by == "run")
    comparison = None
    if asked.kind in (None, Kind.DOTS, Kind.BARS):
        # A figure is drawn of runs, too, that cannot be compared, and of what runs report by step.
        with suppress(GpuAgentError):
            comparison = compare_what_differs(ask, replace(request, metric=asked.names[0], series=False))
            request = replace(request, by=comparison.request.by, experiment=comparison.request.experiment)
    chosen = choose_runs(ask, request, find_facet(asked.rows), stats_in(asked.names), known=comparison)
    kind = asked.kind or _choose_kind(ask, asked.names, chosen)
    if kind is Kind.TIME:
        return draw_over_time(ask, chosen, find_charts(asked.names), asked.width_mm, request.each)
    if kind is Kind.STEPS:
        picture = draw_by_step(ask, chosen, asked.names, asked.width_mm)
    else:
        matrix = tabulate_runs(ask, chosen, request, asked.names)
        picture = (draw_bars if kind is Kind.BARS else draw_dots)(matrix, asked.width_mm)
        picture.missing = matrix.missing
    if comparison is None:
        return picture
    said = say_comparison(comparison, most=1, place="in the figure")
    if comparison.figures.are_level:
        said = say_level(comparison, is_last=kind is Kind.STEPS)
    return _saying(picture, f"{said} {say_choice(comparison, asked.request)}".rstrip())


def _choose_kind(ask: Ask, names: Sequence[str], chosen: Selection) -> Kind | None:
    """Return the kind that is clear from the names and the number of runs; None: dots.

    Of a result such as the loss, that is the curve, if the runs report more than the last one.
    """
    known = {metric.name: metric.group for metric in chosen.facts.known}
    unknown = [name for name in names if name not in known]
    if unknown:
        reported = names_by_step(ask, chosen.layout.run_ids)
        if set(names) <= set(reported):
            return Kind.STEPS
        if unknown[0].startswith("cost_per_") and chosen.facts.prices is None:
            raise MisuseError(f"{unknown[0]} needs prices: add --prices FILE (docs/cost.md)")
        hint = hint_at(unknown[0], [*known, *reported, *WHOLE])
        raise MisuseError(f"{unknown[0]} is neither a metric nor reported by step; {hint}")
    if {known[name] for name in names} == {"Result"}:
        return Kind.STEPS if set(names) <= set(names_by_step(ask, chosen.layout.run_ids, least=2)) else None
    cells = [cell for block in chosen.layout.blocks for cell in block.cells if cell.runs]
    is_few = len(cells) <= MOST_LINES and all(len(cell.runs) == 1 for cell in cells)
    is_sampled = all(name in CURVES and BY_NAME[name].quantity for name in names)
    return Kind.TIME if is_few and is_sampled else None


def _runs(ask: Ask, request: Request) -> list[Run]:
    """Return the runs of the sides that are asked for, or all."""
    facet = find_facet(request.by)
    runs = find_runs(ask, facet, **request.conditions)
    sides = choose_sides(runs, facet, request.values, request.baseline) if request.values else None
    return [run for run in runs if sides is None or run.side in sides]
