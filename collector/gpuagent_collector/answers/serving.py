"""`collector serving`: servers of language models over levels of load."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from gpuagent_collector.answers.found_load import (
    found_section,
    found_table,
    write_doubts,
    write_found,
)
from gpuagent_collector.answers.serving_curves import (
    ENERGY,
    LIMITED,
    LOADS,
    USUAL_PERCENT,
    Curve,
    Point,
    Study,
    choose_study,
    write_limits,
)
from gpuagent_collector.compare.caveats.figures import CLIENT_LIMITED, differing_answers, programs_caveat
from gpuagent_collector.compare.comparison import Request
from gpuagent_collector.metrics import BY_NAME
from gpuagent_collector.present.answer import Answer, Caveat, Legend, Part, Section
from gpuagent_collector.present.human import change, in_unit, notation, ratio, significant
from gpuagent_collector.present.table import Column, Table
from gpuagent_collector.prices.runs import why_unpriced
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.runs.words import distinguishing, interval, name_file, reasons, write_command, write_shift
from gpuagent_collector.statistics.shift import least_runs


def find_caveats(study: Study) -> Iterator[Caveat]:
    """Yield every warning that applies."""
    layout = study.chosen.layout
    if unpriced := why_unpriced(study.chosen.facts):
        yield Caveat(
            code="unpriced",
            text=f"no cost{' of some runs' if study.costs else ''}: {unpriced}",
            remedy="see docs/cost.md",
        )
    if programs := programs_caveat({side: layout.runs_of(side) for side in layout.sides}):
        yield programs
    limited = _places(study, lambda point: point.figures.get("client_limited", 0) > 0)
    limited = limited or ", ".join(one.side for one in study.found if one.figures.get("client_limited", 0) > 0)
    if limited:
        yield replace(CLIENT_LIMITED, text=CLIENT_LIMITED.text.format(where=limited))
    if failed := _places(study, lambda point: point.figures.get("request_errors", 0) > 0):
        yield Caveat(
            code="request_errors",
            text=f"requests failed in {failed}: percentiles are those of the others",
            remedy="see the results errors_… of these runs, and judge by goodput, which counts failures as missed",
        )
    if unsuccessful := _places(study, lambda point: point.failed > 0):
        yield Caveat(
            code="unsuccessful",
            text=f"runs that ended without success are in no figure: {unsuccessful}",
            remedy=f"a side that fails more often is worse than its figures; reasons: {reasons()}",
        )
    if any(point.shift and point.shift.low is None for curve in study.curves for point in _points(curve)):
        yield Caveat(
            code="few_runs",
            text="too few runs for a confidence interval on the ratio of some load",
            remedy=f"repeat with at least {least_runs(1)} runs of each side and load",
        )


def _points(curve: Curve) -> Iterator[Point]:
    for points in curve.points.values():
        yield from points


def _places(study: Study, concerns: Any) -> str:
    """Return the sides and loads of the points for which `concerns` is true, in words; '' for none."""
    every = [(curve, side, point) for curve in study.curves for side in curve.points for point in curve.points[side]]
    found = [f"{side} at {_write_load(point.load, curve)}" for curve, side, point in every if concerns(point)]
    if len(found) == len(every) > 1:
        return "most runs at every load"
    return f"{', '.join(found[:3])}{f' and {len(found) - 3} more' if len(found) > 3 else ''}"


def _write_load(level: float, curve: Curve) -> str:
    """Return a level of load in words: 1 request/s, 8 users."""
    unit = LOADS[curve.load]
    return (
        f"{significant(level)} {unit.replace('requests', 'request').replace('users', 'user') if level == 1 else unit}"
    )


def answer(study: Study) -> str:
    """Return what each curve says."""
    sentences = [*_say_loads(study)]
    sentences += [doubt for one in study.found for doubt in write_doubts(one)]
    sentences += [sentence for curve in study.curves for sentence in _sentences(curve, study)]
    layout = study.chosen.layout
    compared = differing_answers({side: layout.runs_of(side) for side in layout.sides}, study.chosen.facts)
    for side, (number, prompts) in compared.items():
        if number:
            said = f"differ from those of {layout.sides[0]} in {number} of {prompts}"
        else:
            said = f"are those of {layout.sides[0]} in all {prompts}"
        sentences.append(f"Answers of {side} {said}.")
    return " ".join(sentences)


def _before(curve: Curve, study: Study) -> str:
    """Return what a sentence about a curve begins with: its settings; '' for the only curve."""
    return f"{name}: " if (name := tell_apart(curve, study)) else ""


def _say_loads(study: Study) -> Iterator[str]:
    """Yield the highest loads within each limit: those that were searched for, and of other sides the highest kept."""
    loads: dict[tuple[str, str], dict[str, str | None]] = defaultdict(dict)
    for one in study.found:
        loads["", one.limits][one.side] = write_found(one)
    searched = {(one.side, one.limits) for one in study.found}
    is_open = False
    for curve in study.curves:
        limits = write_limits(curve.limits)
        sides = [side for side in curve.points if curve.limits.milliseconds and (side, limits) not in searched]
        for side in sides:
            loads[_before(curve, study), limits][side] = _kept(side, curve, study)
        is_open |= bool(sides) and all(curve.best(side) is curve.points[side][-1] for side in sides)
    for (before, limits), of_sides in loads.items():
        clauses, verb = [], " sustains"
        for side, load in of_sides.items():
            clauses.append(f"{side} keeps it at no measured load" if load is None else f"{side}{verb} {load}")
            verb = " sustains" if load is None else ""
        yield f"{before}Within {limits}, {', '.join(clauses)}."
    if is_open and study.search is None:
        yield "The limit was not reached: load it higher to find it."


def _sentences(curve: Curve, study: Study) -> Iterator[str]:
    before = _before(curve, study)
    title = _title(curve.limits.metric)
    for crossing in curve.crossings:
        side, baseline = crossing.side, next(iter(curve.points))
        seen = "" if crossing.is_shown else ", not shown by the intervals"
        yield (
            f"{before}{side} and {baseline} cross in {title} between {significant(crossing.below)} and "
            f"{significant(crossing.above)} {LOADS[curve.load]} (about {significant(crossing.about)}{seen})."
        )
        before = ""
    if len(curve.points) > 1 and not curve.crossings:
        for side, points in [*curve.points.items()][1:]:
            if shift := points[-1].shift:
                where = f"at {_write_load(points[-1].load, curve)}"
                evidence = f" (ratio {ratio(shift.estimate)}, {interval(shift)})"
                if shift.low is None:
                    said, evidence = f"{where} the runs are too few to compare {title}", ""
                elif shift.is_shown:
                    slower = "higher" if shift.estimate > 1 else "lower"
                    said = f"{where} the {title} of {side} is {change(shift.estimate).lstrip('+−')} {slower}"
                else:
                    said = f"no measurable difference in {title} {where}"
                said = said if before else said[0].upper() + said[1:]
                yield f"{before}{said}{evidence}."
                before = ""
                yield from _seen_in_servers(side, points[-1], curve)
    if len(curve.points) == 1 and not curve.limits.milliseconds:
        yield f"{before}One side, and no limit: give one such as --ttft 200."


# Figures of servers that explain latency: the metric, in words, and from which difference on; below 0, less is slower.
_SEEN_LATER = (("server_preemptions", "requests preempted in a run", 1.0),)
_SEEN = (
    ("server_requests_waiting", "requests waiting", 1.0),
    *_SEEN_LATER,
    ("server_prefix_hit_percent", "% of its prompt tokens found in its cache", -5.0),
)


def _seen_in_servers(side: str, point: Point, curve: Curve) -> Iterator[str]:
    """Yield what the servers themselves say of a shown difference at a level of load, where it points the same way."""
    baseline = next(iter(curve.points))
    before = [one for one in curve.points[baseline] if one.load == point.load and one.figures]
    if not before or not (point.shift and point.shift.is_shown):
        return
    if point.shift.estimate > 1:
        slow_side, slow, quick_side, quick = side, point, baseline, before[0]
    else:
        slow_side, slow, quick_side, quick = baseline, before[0], side, point
    # Who waits in the server has no first token yet.
    is_of_later_tokens = curve.limits.metric.startswith("tpot_")
    for name, words, least in _SEEN_LATER if is_of_later_tokens else _SEEN:
        if name not in slow.figures or name not in quick.figures:
            continue
        of_slow, of_quick = slow.figures[name], quick.figures[name]
        if (of_slow - of_quick) / least >= 1:
            said = f"{significant(of_slow)} {words}, that of {quick_side} {significant(of_quick)}"
            yield f"There the server of {slow_side} has {said}."


def _kept(side: str, curve: Curve, study: Study) -> str | None:
    """Return the highest load at which a side keeps the limits, in words; None: there is none."""
    point = curve.best(side)
    if point is None:
        return None
    extent = " or more" if point is curve.points[side][-1] else ""
    units = {"throughput": "tokens/s", ENERGY: "J per token"}
    units |= {metric.name: f"{metric.unit} per million tokens" for metric in study.costs}
    figures = [f"{significant(point.figures[name])} {unit}" for name, unit in units.items() if name in point.figures]
    return f"{_write_load(point.load, curve)}{extent} ({', '.join(figures)})"


def _title(metric: str) -> str:
    kind, _, rest = metric.partition("_")
    return f"{LIMITED[kind]} {rest.removesuffix('_seconds')}"


def tell_apart(curve: Curve, study: Study) -> str:
    """Return the settings that distinguish a curve from the others of a study; '' for the only one."""
    telling = distinguishing(curve.settings, (other.settings for other in study.curves))
    load = [f"by {curve.load}"] if len({other.load for other in study.curves}) > 1 else []
    return " ".join([*(f"{name}={value}" for name, value in telling.items()), *load])


def answer_serving(ask: Ask, *, percent: int | None, milliseconds: Mapping[str, float], **asked: Any) -> Answer:
    """Answer the command; `asked` are the fields of a comparison's request."""
    return render(choose_study(ask, Request(**asked), percent=percent, milliseconds=milliseconds))


def render(study: Study) -> Answer:
    """Return the answer; CSV has a line for each side and load of each curve."""
    layout = study.chosen.layout
    of_curves = (side for curve in study.curves for side in curve.points)
    sides = list(dict.fromkeys([*layout.sides, *of_curves, *(one.side for one in study.found)]))
    tables = [_data(curve, study) for curve in study.curves]
    found = found_table(study.found, {"throughput": "tokens/s", ENERGY: "J/token", **_cost_titles(study)})
    facts = {"curves": [_facts(curve, table) for curve, table in zip(study.curves, tables, strict=True)]}
    percent = None if study.asked.percent == USUAL_PERCENT else f"{study.asked.percent:g}"
    options = {
        **study.request.words,
        "--by": layout.facet.name,
        "--baseline": study.request.baseline,
        **{f"--{kind}": f"{most:g}" for kind, most in study.asked.milliseconds.items()},
        "--at": percent,
        "-o": name_file("serving.pdf"),
    }
    drawn = write_command("plot", options, "serving", sides=study.request.values)
    # What the sentence has of it is enough beside a curve.
    sections = [found_section(found, is_detail=bool(tables))] if study.found else []
    sections += [_section(curve, study) for curve in study.curves]
    text, is_named = answer(study), study.searched and len(study.curves) <= 1
    # An only table needs no heading of its own.
    parts = sections.pop().parts if sum(not section.is_detail for section in sections) == 1 else []
    return Answer(
        heading=f"Serving by {layout.facet.spoken}: {', '.join(sides)}",
        text=text,
        short=f"{text} The next command {study.searched}." if is_named else None,
        parts=parts,
        sections=sections,
        caveats=tuple(find_caveats(study)),
        next=study.search or (drawn if tables else None),
        more="tokens per second and joules at each load" if tables else "",
        facts={**facts, **({"found": found} if study.found else {})},
        csv=tables or [found],
        sides=sides,
    )


def _facts(curve: Curve, points: Table) -> dict[str, Any]:
    best = {side: point.load if (point := curve.best(side)) else None for side in curve.points}
    return {
        "load": curve.load,
        "settings": curve.settings,
        "percent": curve.limits.percent,
        "limits_milliseconds": curve.limits.milliseconds,
        "highest_load_kept": best if curve.limits.milliseconds else None,
        "crossings": curve.crossings,
        "points": points,
    }


def _data(curve: Curve, study: Study) -> Table:
    rows = [{"side": side, "point": point} for side, points in curve.points.items() for point in points]
    of_searches = ("highest_", "search_")
    names = [name for name, each in BY_NAME.items() if each.group == "Serving" and not name.startswith(of_searches)]
    figures = ("throughput", *names, ENERGY, *(metric.name for metric in study.costs))
    columns = (
        Column("side"),
        Column("load", value="point.load"),
        Column("load_unit", value=lambda _row: LOADS[curve.load]),
        Column("runs", value="point.runs"),
        Column("failed_runs", value="point.failed"),
        *(Column(name, value=f"point.figures.{name}") for name in figures),
        Column("metric", value=lambda _row: curve.limits.metric),
        Column("ratio", value="point.shift.estimate"),
        Column("ratio_low", value="point.shift.low"),
        Column("ratio_high", value="point.shift.high"),
        Column("is_kept", value="point.is_kept"),
    )
    return Table(columns, rows)


def _section(curve: Curve, study: Study) -> Section:
    shared = ("model", "api", "input", "output")
    agreed = ", ".join(f"{name} {value}" for name, value in curve.settings.items() if name in shared)
    notes = ["Medians over runs.", f"Ratios are of {_title(curve.limits.metric)} to the first side's [95 %]."]
    if curve.limits.milliseconds:
        notes.append(f"kept: {write_limits(curve.limits)}.")
    if any(ENERGY in point.figures for point in _points(curve)):
        notes.append("Joules are those of the GPUs, tokens those of the output.")
    rows = list(_by_load(curve))
    first = (Column(None, LOADS[curve.load], "load", left=True), Column(None, "side", "side", left=True))
    latency = Table((*first, *_latency(curve)), rows)
    output = Table((*first, *_output(study)), rows)
    parts: list[Part] = [Legend("", f"All runs agree in {agreed}.")] if agreed else []
    legend = Legend("", " ".join(notes))
    heading = tell_apart(curve, study) or f"Latency by {curve.load}"
    return Section(heading, [*parts, latency, Legend("", output), legend])


def _by_load(curve: Curve) -> Iterator[dict[str, Any]]:
    """Yield load, side and point, by load; the load only once."""
    for level in sorted({point.load for point in _points(curve)}):
        shown = significant(level)
        for side, points in curve.points.items():
            for point in points:
                if point.load == level:
                    yield {"load": shown, "side": side, "point": point}
                    shown = ""


def _latency(curve: Curve) -> Iterator[Column]:
    yield Column(None, "runs", lambda row: _runs(row["point"]))
    for kind in curve.limits.kinds:
        title, name = f"{LIMITED[kind]} p{curve.limits.percent}", f"{kind}_p{curve.limits.percent}_seconds"
        yield Column(None, title, f"point.figures.{name}", show=in_unit("seconds"))
    yield Column(None, "ratio [95 %]", "point.shift", show=partial(write_shift, scale=notation([1.0], "")))
    yield Column(None, "kept", "point.is_kept")


def _runs(point: Point) -> str:
    return f"{point.runs} of {point.runs + point.failed}" if point.failed else str(point.runs)


def _cost_titles(study: Study) -> dict[str, str]:
    return {metric.name: f"{metric.unit}/million" for metric in study.costs}


def _output(study: Study) -> Iterator[Column]:
    titles = {"throughput": "tokens/s", "goodput_requests_per_second": "goodput/s", ENERGY: "J/token"}
    titles |= _cost_titles(study)
    for name, title in titles.items():
        yield Column(None, title, f"point.figures.{name}")
