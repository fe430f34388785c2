"""A ladder and a divided ratio as documents, and in every format."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from gpuagent_collector.output.document import Bullets, Grid, Paragraph, Section
from gpuagent_collector.output.human import notation, ratio
from gpuagent_collector.output.rendering import Rendering
from gpuagent_collector.output.values import ABSENT
from gpuagent_collector.runs.cells import tell_apart
from gpuagent_collector.runs.words import interval, spoken, write_shift
from gpuagent_collector.statistics.shift import Shift
from gpuagent_collector.why.division import Division
from gpuagent_collector.why.experiment import write_experiment
from gpuagent_collector.why.ladder import Ladder
from gpuagent_common.text import counted


def render_ladder(ladder: Ladder, path: str | None) -> Rendering:
    """Return the forms of a plan; `path` is where its experiment was written, None: nowhere."""
    return Rendering(
        sections=partial(_plan_sections, ladder, path),
        record=lambda: {
            "sides": ladder.comparison.layout.sides,
            "experiment": ladder.name,
            "repeats": ladder.repeats,
            "rungs": list(_rung_lines(ladder)),
            "not_separated": [
                {"fact": each.title, "values": each.values, "remedy": each.remedy} for each in ladder.fixed
            ],
            "with_image": ladder.with_image,
            "file": write_experiment(ladder),
        },
        lines=partial(_rung_lines, ladder),
    )


def _plan_sections(ladder: Ladder, path: str | None) -> Iterator[Section]:
    comparison = ladder.comparison
    block, (foot, top) = comparison.layout.blocks[0], comparison.layout.sides
    runs = ladder.repeats * len(ladder.rungs)
    then = f"To make them: gpuagent experiment run {path}" if path else "-o FILE writes the experiment."
    text = (
        f"From {foot} to {top}, an experiment can change {counted(len(ladder.rungs) - 1, 'fact')}, one after "
        f"the other: {counted(len(ladder.rungs), 'cell')} in {counted(ladder.repeats, 'repeat')}, {runs} runs. "
        f"What two facts cause only together counts for the later one. {then}"
    )
    rows = tuple((str(number), rung.fact, rung.change) for number, rung in enumerate(ladder.rungs))
    workload = tell_apart(block, comparison.layout.blocks)
    yield Section(
        heading=f"Why {workload} differs between {foot} and {top}",
        parts=(Paragraph(text=text), Grid(header=("rung", "fact", "change"), rows=rows, figures_from=3)),
    )
    if ladder.with_image:
        yield Section(
            heading="Changes together with the image; insert a rung with other versions to separate it",
            parts=(Bullets(points=tuple((each, "") for each in ladder.with_image)),),
        )
    if ladder.fixed:
        points = tuple((f"{each.title}: {' / '.join(each.values)}", each.remedy) for each in ladder.fixed)
        yield Section(heading="Not separated, because the experiment cannot set it", parts=(Bullets(points=points),))


def _rung_lines(ladder: Ladder) -> Iterator[dict[str, Any]]:
    for number, rung in enumerate(ladder.rungs):
        yield {"rung": number, "fact": rung.fact, "change": rung.change}


def render_division(division: Division) -> Rendering:
    """Return the forms of a divided ratio: CSV has a line for each fact, the ladder, the original and the rest."""
    return Rendering(
        sections=lambda: [_division_section(division)],
        record=lambda: {
            "sides": division.sides,
            "workload": division.workload,
            "metric": division.metric.name,
            "delta": division.delta,
            "parts": list(_part_lines(division)),
        },
        lines=partial(_part_lines, division),
    )


def _division_section(division: Division) -> Section:
    foot, top = division.sides
    title = spoken(division.metric, None)
    write = notation([1.0], division.metric.unit)
    rows = [
        (
            part.fact,
            str(part.test.pairs) if part.test.pairs else "unpaired",
            write_shift(part.test.judgement.shift, write),
            ABSENT if part.share is None else f"{round(100 * part.share)} %",
            part.test.judgement.verdict.value,
        )
        for part in division.parts
    ]
    for name, shift in _wholes(division):
        rows.append((name, "", write_shift(shift, write), "", ""))
    return Section(
        heading=f"Why {division.workload} differs between {foot} and {top}",
        parts=(
            Paragraph(text=_answer(division)),
            Grid(header=("fact", "pairs", f"ratio of {title}", "share", "verdict"), rows=tuple(rows)),
        ),
    )


def _wholes(division: Division) -> Iterator[tuple[str, Shift]]:
    yield "all rungs", division.ladder
    if division.original:
        yield "original runs", division.original
    if division.rest:
        yield "unexplained rest", division.rest


def _answer(division: Division) -> str:
    foot, top = division.sides
    shown = [part for part in division.parts if part.test.judgement.verdict.name == "DIFFERS"]
    facts = ", ".join(f"{part.fact} ({ratio(part.test.judgement.shift.estimate)})" for part in shown)
    said = f"From {foot} to {top}, these facts change {spoken(division.metric, None)}: {facts}." if shown else ""
    said = said or f"No fact is shown to change {spoken(division.metric, None)} from {foot} to {top}."
    if division.rest is None:
        rest = "Without other runs of both sides that have a ratio, the unexplained rest is not known."
    elif division.rest.low is None:
        rest = "The runs are too few for an interval of the unexplained rest."
    elif division.rest.is_shown:
        rest = f"The ladder leaves a ratio of {ratio(division.rest.estimate)} unexplained ({interval(division.rest)})."
    else:
        rest = f"No unexplained rest is shown ({interval(division.rest)})."
    if division.outside:
        rest += f" No run of these rungs succeeded, so the rest has their effect: {', '.join(division.outside)}."
    return (
        f"{said} {rest} Each fact counts as it adds to those before it; verdicts of all facts hold together "
        "(Holm), and shares are of the logarithm."
    )


def _part_lines(division: Division) -> Iterator[dict[str, Any]]:
    for part in division.parts:
        shift, verdict = part.test.judgement.shift, part.test.judgement.verdict.value
        yield {"part": part.fact, "pairs": part.test.pairs, "share": part.share, "verdict": verdict, **_numbers(shift)}
    for name, shift in _wholes(division):
        yield {"part": name, "pairs": None, "share": None, "verdict": None, **_numbers(shift)}


def _numbers(shift: Shift) -> dict[str, float | None]:
    return {"estimate": shift.estimate, "low": shift.low, "high": shift.high, "alpha": shift.alpha}
