"""Servers of language models over levels of load: their curves, limits and crossings."""

import json
import shlex
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import log
from typing import Any

from gpuagent_collector.answers.found_load import (
    Found,
    find_loads,
    longer_search,
    search_within,
)
from gpuagent_collector.compare.comparison import Comparison, Request
from gpuagent_collector.compare.figures import values_of_sides
from gpuagent_collector.compare.matrix import Selection, choose_runs
from gpuagent_collector.metrics import BY_NAME, Metric
from gpuagent_collector.present.human import significant
from gpuagent_collector.prices.price import COST_PER_MILLION_ITEMS, currencies_of
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.cells import CANCELLED, EXCLUDED, UNFINISHED, Block
from gpuagent_collector.runs.data import Facts
from gpuagent_collector.runs.facets import find_facet
from gpuagent_collector.runs.repeating import find_recorded, write_parameters
from gpuagent_collector.runs.words import distinguishing
from gpuagent_collector.statistics.shift import Scale, Shift, estimate_shift, least_pairs
from gpuagent_collector.statistics.summaries import median_interval
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.text import harmless

# Parameters that are levels of load, with the unit of each.
LOADS = {"rate": "requests/s", "concurrency": "users"}

# The kinds of latency that a limit can be on, by their option and parameter.
LIMITED = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "whole answer"}

# The figure that every run of serve-load has.
MEASURE = "ttft_p50_seconds"

ENERGY = "gpu_energy_per_item_joules"

# Number of failed runs by side and level of load, for each kind of load and other parameters.
Failures = Mapping[tuple[str, str], Counter[tuple[str, float]]]

_ALPHA = 0.05

# Of the requests that must keep the limits, as serve-load has it.
USUAL_PERCENT = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The latency that a percentage of the requests must keep.

    Attributes:
        percent: 50, 90 or 99; of a search any.
        milliseconds: by kind of latency; empty: no limit.
    """

    percent: float
    milliseconds: Mapping[str, float]

    @property
    def metric(self) -> str:
        """The metric that curves are drawn of: that of the first limit."""
        return f"{next(iter(self.milliseconds), 'ttft')}_p{self.percent}_seconds"

    @property
    def kinds(self) -> list[str]:
        """The kinds of latency that are shown: those with limits, and others that make them two."""
        kinds = list(dict.fromkeys([*self.milliseconds, "ttft", "tpot"]))[: max(2, len(self.milliseconds))]
        return sorted(kinds, key=list(LIMITED).index)

    def are_kept(self, figures: Mapping[str, float]) -> bool | None:
        """Return whether figures keep all limits; None: there is no limit, or no figure."""
        bounds = {f"{kind}_p{self.percent}_seconds": most / 1000 for kind, most in self.milliseconds.items()}
        if not bounds or not all(name in figures for name in bounds):
            return None
        # A request that failed kept no limit.
        if figures.get("request_errors", 0.0) > figures.get("requests", 0.0) * (1 - self.percent / 100):
            return False
        return all(figures[name] <= most for name, most in bounds.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A side at a level of load.

    Attributes:
        runs: number of those that succeeded; 0 where all failed.
        failed: number of those that ended without success.
        figures: medians over the runs, by metric; empty where all failed.
        low, high: 95 % interval of the median of the study's metric; None: too few runs.
        shift: of that metric from the baseline's; None for the baseline, or where one of the two has no runs.
        is_kept: whether the medians keep the limits; False where all runs failed; None: there are none.
        run_ids: of the runs that succeeded.
    """

    load: float
    runs: int
    failed: int
    figures: Mapping[str, float]
    low: float | None
    high: float | None
    shift: Shift | None
    is_kept: bool | None
    run_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Two neighbouring levels of load between which the better side changes.

    Attributes:
        side: the side that crosses the baseline.
        below, above: the levels.
        about: where a line between their ratios is 1; the ratio's logarithm is taken to change evenly.
        is_shown: whether both intervals exclude equality.
    """

    side: str
    below: float
    above: float
    about: float
    is_shown: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The levels of load of runs that agree in all else.

    Attributes:
        load: the parameter that is the level.
        settings: in which the runs agree.
        limits: the latency to keep.
        points: by side, the baseline first, each by ascending load.
        crossings: of the sides with the baseline.
    """

    load: str
    settings: Mapping[str, Any]
    limits: Limits
    points: Mapping[str, tuple[Point, ...]]
    crossings: tuple[Crossing, ...]

    def best(self, side: str) -> Point | None:
        """Return the highest level that keeps the limits, as all below it do; None: the lowest does not."""
        found = None
        for point in self.points[side]:
            if not point.is_kept:
                break
            found = point
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """The curves of a request, and everything that is shown of them.

    Attributes:
        request: which runs and sides were asked for.
        asked: the limits that were asked for.
        costs: metrics of the cost of a million tokens, one for each currency.
        found: the loads that searches found.
        search: the command that searches the load at which a side misses the limit, or longer where a search left an
            end open; None: neither is missing, or no command makes just these runs.
        searched: what it does, in words.
    """

    chosen: Selection
    request: Request
    asked: Limits
    curves: tuple[Curve, ...]
    costs: tuple[Metric, ...]
    found: tuple[Found, ...] = ()
    search: str | None = None
    searched: str | None = None

    @property
    def lines(self) -> list[tuple[Curve, str]]:
        """Each curve and side with figures."""
        return [
            (curve, side)
            for curve in self.curves
            for side, points in curve.points.items()
            if any(point.figures for point in points)
        ]


def study_serving(
    ask: Ask,
    request: Request,
    *,
    percent: int | None,
    milliseconds: Mapping[str, float],
    known: Comparison | None = None,
) -> Study:
    """Return the curves of the runs of a request.

    Args:
        ask: runs a query on the store.
        request: the runs and sides.
        percent: the percentage of requests that must keep the limits; None: 90.
        milliseconds: limits by kind of latency; empty: those of the runs' own parameters.
        known: a comparison of the request; None: nothing is known of it yet.

    Raises:
        MisuseError: a facet, value, workload or experiment is unknown.
        GpuAgentError: no run measured a server.
    """
    chosen = _join_addresses(choose_runs(ask, request, find_facet("workload"), known=known))
    groups: dict[tuple[str, str], dict[float, Block]] = defaultdict(dict)
    for block in chosen.layout.blocks:
        found = _load(block.parameters)
        if found and any(chosen.facts.has(cell.runs, MEASURE) for cell in block.cells):
            load, level = found
            rest = {name: value for name, value in block.settings.items() if name != load}
            groups[load, json.dumps(rest, sort_keys=True)][level] = block
    highest = tuple(find_loads(chosen, lambda settings: write_limits(_own_limits(settings))))
    if not (groups or highest):
        raise GpuAgentError("no run measured a server under load; make some: gpuagent run serve-load --help")
    failures = _count_failures(chosen, {*request.values, request.baseline} if request.values else None)
    curves = [
        _curve(load, json.loads(rest), blocks, chosen, failures, percent or USUAL_PERCENT, milliseconds)
        for (load, rest), blocks in groups.items()
    ]
    # Imported results may lack the percentile of the limit.
    curves = [curve for curve in curves if curve.points] or curves
    asked = Limits(percent=percent or USUAL_PERCENT, milliseconds=milliseconds)
    of_asked = tuple(one for one in highest if one.limits == write_limits(asked))
    if milliseconds and (curves or of_asked):
        highest = of_asked
    stem = f"{COST_PER_MILLION_ITEMS.stem}_"
    costs = tuple(metric for metric in chosen.facts.derived if metric.name.startswith(stem))
    search, searched = _search_limit(ask, curves, {(one.side, one.limits) for one in highest})
    if milliseconds and not (curves or of_asked):
        search, searched = search_within(ask, highest, write_limits(asked), _slo(asked))
    elif search is None and highest:
        search, searched = longer_search(ask, chosen, highest)
    return Study(
        chosen=chosen,
        request=request,
        asked=asked,
        curves=tuple(curves),
        costs=costs if currencies_of(costs) else (),
        found=highest,
        search=search,
        searched=searched,
    )


def _join_addresses(chosen: Selection) -> Selection:
    """Return the runs without the address of their server, where each side has one of its own; else as they are."""
    layout, alike = chosen.layout, defaultdict[str, list[Block]](list)
    served = [block for block in layout.blocks if "url" in block.parameters]
    asked = {(cell.side, block.parameters["url"]) for block in served for cell in block.cells}
    if len({side for side, _ in asked}) < len(asked) or len({url for _, url in asked}) < 2:
        return chosen
    for block in served:
        rest = replace(block, parameters={**block.parameters, "url": None})
        alike[json.dumps([rest.row, rest.workload, rest.settings], sort_keys=True)].append(rest)
    places = {side: place for place, side in enumerate(layout.sides)}
    blocks = [block for block in layout.blocks if "url" not in block.parameters]
    for same in alike.values():
        cells = (cell for block in same for cell in block.cells)
        in_order = sorted(cells, key=lambda cell: places.get(cell.side, len(places)))
        blocks.append(replace(same[0], cells=tuple(in_order)))
    runs = [replace(run, parameters=json.dumps({**json.loads(run.parameters), "url": None})) for run in chosen.runs]
    return replace(chosen, layout=replace(layout, blocks=tuple(blocks)), runs=runs)


# Neighbouring loads further apart than by this factor leave the limit between them open.
_WIDE_GAP = 2.0


def _search_limit(
    ask: Ask, curves: Sequence[Curve], known: Collection[tuple[str, str]]
) -> tuple[str | None, str | None]:
    """Return the command that searches a side's limit, and in words what it does; None: no limit is open.

    Of sides that keep the limits at each load it is the one that was loaded least, from its highest load on; where
    there is no such side, the first whose limit lies in a wide gap between two loads. Sides whose highest load is
    `known` are not searched again.
    """
    open_ends: list[tuple[Point, Curve, str, str]] = []
    gaps: list[tuple[Point, Curve, str, str]] = []
    for curve in curves:
        for side, points in curve.points.items():
            best = curve.best(side)
            if not curve.limits.milliseconds or best is None or (side, write_limits(curve.limits)) in known:
                continue
            if best is points[-1]:
                open_ends.append((best, curve, side, f"loads {side} higher to find its limit"))
                continue
            above = points[points.index(best) + 1]
            # One without figures of these limits says nothing of them.
            if above.is_kept is False and above.load > _WIDE_GAP * best.load:
                ends = f"{significant(best.load)} and {significant(above.load)} {LOADS[curve.load]}"
                gaps.append((best, curve, side, f"finds the limit of {side} between {ends}"))
    if open_ends:
        best, curve, side, words = min(open_ends, key=lambda one: one[0].load)
    elif gaps:
        best, curve, side, words = gaps[0]
    else:
        return None, None
    recorded = find_recorded(ask, best.run_ids)
    if not recorded.given:
        return None, None
    searched = {**_slo(curve.limits), "find": curve.load, curve.load: f"{best.load:g}"}
    if best.figures.get("client_limited", 0) > 0:
        searched["clients"] = str(2 * int(recorded.given.get("clients", "1")))
    arguments = write_parameters(recorded.given | searched)
    command = harmless(shlex.join(["gpuagent", "bench", "serve-load", *arguments, *recorded.options]))
    return command, words


def _slo(limits: Limits) -> dict[str, str]:
    """Return the parameters of limits."""
    percent = {} if limits.percent == USUAL_PERCENT else {"slo-percent": f"{limits.percent:g}"}
    return {**{f"slo-{kind}": f"{most:g}" for kind, most in limits.milliseconds.items()}, **percent}


def _load(parameters: Mapping[str, Any]) -> tuple[str, float] | None:
    """Return the parameter that is the level of load, and the level; None: there is none, or two, or it was found."""
    if parameters.get("find") is not None:
        return None
    given = [(name, float(parameters[name])) for name in LOADS if parameters.get(name) is not None]
    return given[0] if len(given) == 1 else None


def _rest(parameters: Mapping[str, Any]) -> str:
    """Return the parameters that are no load."""
    rest = {name: value for name, value in parameters.items() if name not in LOADS and value is not None}
    return json.dumps(rest, sort_keys=True)


def _count_failures(chosen: Selection, sides: Collection[str | None] | None) -> Failures:
    """Return the runs of sides, None: all, that ended without success."""
    counts: dict[tuple[str, str], Counter[tuple[str, float]]] = defaultdict(Counter)
    for run in chosen.runs:
        parameters = json.loads(run.parameters)
        if (
            run.side is not None
            and (sides is None or run.side in sides)
            and run.status not in ("succeeded", *UNFINISHED, CANCELLED, EXCLUDED)
            and (found := _load(parameters))
        ):
            load, level = found
            counts[load, _rest(parameters)][run.side, level] += 1
    return counts


def _curve(
    load: str,
    settings: Mapping[str, Any],
    blocks: Mapping[float, Block],
    chosen: Selection,
    failures: Failures,
    percent: int,
    milliseconds: Mapping[str, float],
) -> Curve:
    limits = Limits(percent=percent, milliseconds=milliseconds or _own_limits(settings).milliseconds)
    failed = failures.get((load, _rest(next(iter(blocks.values())).parameters)), Counter())
    measured = {
        (cell.side, level): block
        for level, block in blocks.items()
        for cell in block.cells
        if chosen.facts.has(cell.runs, limits.metric)
    }
    sides = [side for side in chosen.layout.sides if any(side == one for one, _ in measured)]
    sides += sorted({side for side, _ in failed}.difference(sides))
    alpha = _ALPHA / chosen.layout.looks
    is_kept = False if limits.milliseconds else None
    points: dict[str, list[Point]] = defaultdict(list)
    for side, level in sorted({*measured, *failed}):
        number = failed[side, level]
        if block := measured.get((side, level)):
            point = _point(level, block, side, sides[0], number, limits, chosen.facts, alpha)
        else:
            point = Point(
                load=level, runs=0, failed=number, figures={}, low=None, high=None, shift=None, is_kept=is_kept
            )
        points[side].append(point)
    crossings = [crossing for side in sides[1:] for crossing in _crossings(side, points[side])]
    return Curve(
        load=load,
        settings=settings,
        limits=limits,
        points={side: tuple(points[side]) for side in sides},
        crossings=tuple(crossings),
    )


def _own_limits(settings: Mapping[str, Any]) -> Limits:
    """Return the limits that are parameters of runs."""
    own = {kind: float(settings[f"slo-{kind}"]) for kind in LIMITED if settings.get(f"slo-{kind}") is not None}
    percent = float(settings.get("slo-percent") or USUAL_PERCENT)
    return Limits(percent=int(percent) if percent.is_integer() else percent, milliseconds=own)


def _point(
    level: float, block: Block, side: str, baseline: str, failed: int, limits: Limits, facts: Facts, alpha: float
) -> Point:
    runs = block.cell(side).runs
    figures = facts.medians(runs)
    low, high = median_interval(facts.values(runs, limits.metric)) or (None, None)
    has_baseline = side != baseline == block.baseline and facts.has(block.cell(baseline).runs, limits.metric)
    sides = values_of_sides(facts, least_pairs(1, alpha), block, side, BY_NAME[limits.metric])
    return Point(
        load=level,
        runs=len(runs),
        failed=failed,
        figures=figures,
        low=low,
        high=high,
        shift=estimate_shift(*sides, alpha=alpha) if has_baseline else None,
        is_kept=limits.are_kept(figures),
        run_ids=tuple(run.run_id for run in runs),
    )


def _crossings(side: str, points: Sequence[Point]) -> list[Crossing]:
    found = []
    compared = [(point.load, point.shift) for point in points if point.shift and point.shift.scale is Scale.RATIO]
    for (below, first), (above, second) in pairwise(compared):
        before, after = log(first.estimate), log(second.estimate)
        if before * after < 0:
            about = below + (above - below) * before / (before - after)
            is_shown = first.is_shown and second.is_shown
            found.append(Crossing(side=side, below=below, above=above, about=about, is_shown=is_shown))
    return found


def write_limits(limits: Limits) -> str:
    """Return the limits in words: 200 ms TTFT (p90)."""
    parts = [f"{most:g} ms {LIMITED[kind]}" for kind, most in limits.milliseconds.items()]
    return f"{' and '.join(parts)} (p{limits.percent})"


def choose_study(ask: Ask, request: Request, *, percent: int | None, milliseconds: Mapping[str, float]) -> Study:
    """Return the study of a request; one side of several servers is divided by the parameter in which they differ.

    Raises as `study_serving`.
    """
    # What is a level of load is the curve's axis, and divides nothing.
    loads = {f"parameter:{name}" for name in LOADS}
    divided = [name for name in map(str.strip, request.by.split(",")) if name not in loads]
    request = replace(request, by=",".join(divided) or "platform")
    if request.by == "platform" and request.event is None:
        everything = replace(request, values=(), baseline=None)
        study = study_serving(ask, everything, percent=percent, milliseconds=milliseconds)
        facet = _find_difference(study)
        named = {*request.values, request.baseline} - {None}
        if facet and not named & set(study.chosen.layout.sides):
            request = replace(request, by=facet)
        elif not named:
            return study
    return study_serving(ask, request, percent=percent, milliseconds=milliseconds)


def _find_difference(study: Study) -> str | None:
    """Return the facet of the servers that one side has, or of the only parameter in which its curves differ.

    None: there are several sides, or no such parameter.
    """
    if len({*(side for _, side in study.lines), *(one.side for one in study.found)}) != 1:
        return None
    blocks = study.chosen.layout.blocks
    settings = [curve.settings for curve in study.curves] or [block.settings for block in blocks]
    names = {name for own in settings for name in distinguishing(own, settings)}
    if "server" in names and all("server" in own for own in settings):
        return "parameter:server"
    parameters = {name for block in blocks for name in block.parameters}
    return f"parameter:{next(iter(names))}" if len(names) == 1 and names <= parameters else None
