"""A study of servers in words, as a document of paragraphs and tables, and in every format."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from gpuagent_collector.compare.caveats.figures import client_limited_caveat, programs_caveat
from gpuagent_collector.metrics import BY_NAME
from gpuagent_collector.output.document import Caveat, Grid, Paragraph, Section, caveat_sections, read_warnings
from gpuagent_collector.output.human import notation, ratio, significant
from gpuagent_collector.output.rendering import Rendering
from gpuagent_collector.output.sections import print_sections
from gpuagent_collector.output.shortening import shorten_sides
from gpuagent_collector.output.values import ABSENT
from gpuagent_collector.runs.words import distinguishing, interval, reasons, write_shift
from gpuagent_collector.serving.study import ENERGY, LIMITED, LOADS, Curve, Point, Study
from gpuagent_collector.statistics.shift import Shift, least_runs


def find_caveats(study: Study) -> tuple[Caveat, ...]:
    """Return every warning that applies."""
    return tuple(_caveats(study))


def _caveats(study: Study) -> Iterator[Caveat]:
    layout = study.chosen.layout
    if programs := programs_caveat({side: layout.runs_of(side) for side in layout.sides}):
        yield programs
    if limited := _places(study, lambda point: point.figures.get("client_limited", 0) > 0):
        yield client_limited_caveat(limited)
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
            remedy=f"repeat with at least {least_runs(1)} runs of each side and load (7 is a good number)",
        )


def _points(curve: Curve) -> Iterator[Point]:
    for points in curve.points.values():
        yield from points


def _places(study: Study, concerns: Any) -> str:
    """Return the sides and loads of the points for which `concerns` is true, in words; '' for none."""
    found = [
        f"{side} at {significant(point.load)} {LOADS[curve.load]}"
        for curve in study.curves
        for side, points in curve.points.items()
        for point in points
        if concerns(point)
    ]
    return f"{', '.join(found[:3])}{f' and {len(found) - 3} more' if len(found) > 3 else ''}"


def answer(study: Study, warnings: int) -> str:
    """Return what each curve says, and a pointer to the warnings."""
    return " ".join([*(" ".join(_sentences(curve, study)) for curve in study.curves), *read_warnings(warnings)])


def _sentences(curve: Curve, study: Study) -> Iterator[str]:
    before = f"{name}: " if (name := tell_apart(curve, study)) else ""
    if curve.limits.milliseconds:
        kept = [_kept(side, curve, study) for side in curve.points]
        yield f"{before}Within {write_limits(curve)}, {'; '.join(kept)}."
        before = ""
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
                yield (
                    f"{before}No crossing: at {significant(points[-1].load)} {LOADS[curve.load]} {side} has "
                    f"{ratio(shift.estimate)} times the {title} ({interval(shift)})."
                )
                before = ""
    if len(curve.points) == 1 and not curve.limits.milliseconds:
        yield f"{before}One side, and no limit: give one such as --ttft 200."


def write_limits(curve: Curve) -> str:
    """Return the limits in words: 200 ms TTFT (p90)."""
    parts = [f"{most:g} ms {LIMITED[kind]}" for kind, most in curve.limits.milliseconds.items()]
    return f"{' and '.join(parts)} (p{curve.limits.percent})"


def _kept(side: str, curve: Curve, study: Study) -> str:
    point = curve.best(side)
    if point is None:
        return f"{side} keeps it at no measured load"
    extent = " or more" if point is curve.points[side][-1] else ""
    figures = point.figures
    parts = [f"{_write(figures, 'throughput')} tokens/s"] if "throughput" in figures else []
    parts += [f"{_write(figures, ENERGY)} J a token"] if ENERGY in figures else []
    for metric in study.costs:
        if metric.name in figures:
            parts.append(f"{_write(figures, metric.name)} {metric.unit} a million tokens")
    return f"{side} takes {significant(point.load)} {LOADS[curve.load]}{extent} ({', '.join(parts)})"


def _write(figures: Any, name: str) -> str:
    return significant(figures[name]) if name in figures else ABSENT


def _title(metric: str) -> str:
    kind, _, rest = metric.partition("_")
    return f"{LIMITED[kind]} {rest.removesuffix('_seconds')}"


def tell_apart(curve: Curve, study: Study) -> str:
    """Return the settings that distinguish a curve from the others of a study; '' for the only one."""
    telling = distinguishing(curve.settings, (other.settings for other in study.curves))
    load = [f"by {curve.load}"] if len({other.load for other in study.curves}) > 1 else []
    return " ".join([*(f"{name}={value}" for name, value in telling.items()), *load])


def build_document(study: Study, caveats: Sequence[Caveat]) -> list[Section]:
    """Return the document."""
    sides = dict.fromkeys([*study.chosen.layout.sides, *(side for curve in study.curves for side in curve.points)])
    heading = f"Serving by {study.chosen.layout.facet.spoken}: {', '.join(sides)}"
    sections = [
        Section(heading=heading, parts=(Paragraph(text=answer(study, len(caveats))),)),
        *(_section(curve, study) for curve in study.curves),
        *caveat_sections(caveats),
    ]
    return shorten_sides(sections, list(sides))


def _section(curve: Curve, study: Study) -> Section:
    agreed = ", ".join(
        f"{name} {value}" for name, value in curve.settings.items() if name in ("model", "api", "input", "output")
    )
    load = LOADS[curve.load]
    times = [f"{LIMITED[kind]} p{curve.limits.percent}" for kind in curve.limits.kinds]
    costs = [f"{metric.unit}/million" for metric in study.costs]
    notes = ["Medians over runs.", f"Ratios are of {_title(curve.limits.metric)} to the first side's [95 %]."]
    if curve.limits.milliseconds:
        notes.append(f"kept: {write_limits(curve)}.")
    if any(ENERGY in point.figures for point in _points(curve)):
        notes.append("Joules: of the GPUs. A token is one of an answer.")
    return Section(
        heading=tell_apart(curve, study) or f"Latency by {curve.load}",
        parts=(
            *((Paragraph(text=f"All runs agree in {agreed}."),) if agreed else ()),
            Grid(
                header=(load, "side", "runs", *times, "ratio [95 %]", "kept"), rows=tuple(_rows(curve)), figures_from=2
            ),
            Grid(
                header=(load, "side", "tokens/s", "goodput/s", "J/token", *costs),
                rows=tuple(_output_rows(curve, study)),
                figures_from=2,
            ),
            Paragraph(text=" ".join(notes)),
        ),
    )


def _by_load(curve: Curve) -> Iterator[tuple[str, str, Point]]:
    """Yield load, side and point, by load; the load only once."""
    for level in sorted({point.load for point in _points(curve)}):
        shown = significant(level)
        for side, points in curve.points.items():
            for point in points:
                if point.load == level:
                    yield shown, side, point
                    shown = ""


def _rows(curve: Curve) -> Iterator[tuple[str, ...]]:
    percent = curve.limits.percent
    for load, side, point in _by_load(curve):
        times = [_seconds(point, f"{kind}_p{percent}_seconds") for kind in curve.limits.kinds]
        shift = write_shift(point.shift, notation([1.0], "")) if point.shift else ABSENT
        kept = ABSENT if point.is_kept is None else "yes" if point.is_kept else "no"
        runs = f"{point.runs} of {point.runs + point.failed}" if point.failed else str(point.runs)
        yield load, side, runs, *times, shift, kept


def _seconds(point: Point, name: str) -> str:
    value = point.figures.get(name)
    if value is None:
        return ABSENT
    scale = notation([value], "seconds")
    return scale.write(value)


def _output_rows(curve: Curve, study: Study) -> Iterator[tuple[str, ...]]:
    names = ("throughput", "goodput_requests_per_second", ENERGY, *(metric.name for metric in study.costs))
    for load, side, point in _by_load(curve):
        yield load, side, *(_write(point.figures, name) for name in names)


def render(study: Study) -> Rendering:
    """Return the forms of a study: CSV has a line for each side and load of each curve."""
    caveats = find_caveats(study)
    sections = partial(build_document, study, caveats)
    return Rendering(
        sections=sections,
        record=lambda: {
            "answer": answer(study, len(caveats)),
            "curves": [_record(curve, study) for curve in study.curves],
            "warnings": [asdict(caveat) for caveat in caveats],
        },
        lines=lambda: (line for curve in study.curves for line in _lines(curve, study)),
        show=lambda console: print_sections(console, sections()),
    )


def _record(curve: Curve, study: Study) -> dict[str, Any]:
    best = {side: point.load if (point := curve.best(side)) else None for side in curve.points}
    return {
        "load": curve.load,
        "settings": dict(curve.settings),
        "percent": curve.limits.percent,
        "limits_milliseconds": dict(curve.limits.milliseconds),
        "highest_load_kept": best if curve.limits.milliseconds else None,
        "crossings": [asdict(crossing) for crossing in curve.crossings],
        "points": list(_lines(curve, study)),
    }


def _lines(curve: Curve, study: Study) -> Iterator[dict[str, Any]]:
    costs = [metric.name for metric in study.costs]
    names = [name for name, metric in BY_NAME.items() if metric.group == "Serving"]
    for side, points in curve.points.items():
        for point in points:
            figures = {name: point.figures.get(name) for name in ("throughput", *names, ENERGY, *costs)}
            line = {"side": side, "load": point.load, "load_unit": LOADS[curve.load], "runs": point.runs}
            line |= {"failed_runs": point.failed, **figures}
            yield {**line, "metric": curve.limits.metric, **_shift(point.shift), "is_kept": point.is_kept}


def _shift(shift: Shift | None) -> dict[str, float | None]:
    if shift is None:
        return dict.fromkeys(("ratio", "ratio_low", "ratio_high"))
    return {"ratio": shift.estimate, "ratio_low": shift.low, "ratio_high": shift.high}
