"""A plan as a document of paragraphs and tables, and in every format."""

from collections.abc import Iterator
from functools import partial
from math import expm1
from typing import Any

from gpuagent_collector.output.document import Grid, Paragraph, Section
from gpuagent_collector.output.rendering import Rendering
from gpuagent_collector.runs.cells import tell_apart
from gpuagent_collector.runs.words import percent, spoken
from gpuagent_collector.sample_size.power import MOST_REPEATS
from gpuagent_collector.sample_size.study import POWERS, BlockPlan, Need, Plan
from gpuagent_common.text import counted


def build_document(plan: Plan) -> list[Section]:
    """Return the document."""
    first = Section(
        heading=f"Repeats for a new experiment: {spoken(plan.metric, plan.question.stat)}",
        parts=(Paragraph(text=_advice(plan)),),
    )
    return [first, *(_section(block, plan) for block in plan.blocks)]


def _advice(plan: Plan) -> str:
    question = plan.question
    within = any(effect <= question.delta for effect in question.effects)
    together = f", in {question.comparisons} comparisons tested together" if question.comparisons > 1 else ""
    return (
        "Plan a new experiment with that many repeats on each side. Do not extend existing runs: anyone who looks and "
        f"then runs more finds false differences in more than {percent(question.alpha)} of cases. Power: the "
        f"probability that a difference of that size, or equality, is shown{together}. Cautious: for the largest "
        "spread that these runs allow (upper end of a one-sided 80 % interval)."
        + (f" A difference within {percent(question.delta)} is called =, unless --delta is smaller." if within else "")
    )


def _section(plan: BlockPlan, whole: Plan) -> Section:
    cells = sum(1 for cell in plan.block.cells if cell.runs)
    of_repeat = " of one repeat, tested in pairs," if plan.matched else ""
    spread = (
        f"Runs{of_repeat} that differ only by chance scatter by {percent(expm1(plan.spread.seen))}, cautiously "
        f"{percent(expm1(plan.spread.cautious))} (standard deviation; {plan.runs} runs in "
        f"{counted(cells, 'circumstance')})."
    )
    header = ("to show", *(f"{percent(power)} power" for power in POWERS))
    header += tuple(f"cautious, {percent(power)}" for power in POWERS)
    return Section(
        heading=tell_apart(plan.block, [other.block for other in whole.blocks]),
        parts=(
            Paragraph(text=spread),
            Grid(header=header, rows=tuple(_row(need, whole) for need in plan.needs)),
        ),
    )


def _row(need: Need, plan: Plan) -> tuple[str, ...]:
    what = (
        f"equality to within {percent(plan.question.delta)}"
        if need.effect is None
        else f"a difference of {percent(need.effect)}"
    )
    repeats = (*need.as_seen, *need.cautious)
    return (what, *(f"> {MOST_REPEATS}" if number is None else str(number) for number in repeats))


def render(plan: Plan) -> Rendering:
    """Return the forms of a plan: CSV has a line for each number of repeats."""
    return Rendering(sections=partial(build_document, plan), record=partial(_record, plan), lines=partial(_lines, plan))


def _record(plan: Plan) -> dict[str, Any]:
    question = plan.question
    return {
        "metric": plan.metric.name,
        "stat": question.stat.value if question.stat else None,
        "where": question.where,
        "comparisons": question.comparisons,
        "level": question.level,
        "needs": list(_lines(plan)),
    }


def _lines(plan: Plan) -> Iterator[dict[str, Any]]:
    for block in plan.blocks:
        for need in block.needs:
            for index, power in enumerate(POWERS):
                yield {
                    "workload": block.block.workload,
                    "parameters": block.block.parameters,
                    "runs": block.runs,
                    "matched": block.matched,
                    "spread": block.spread.seen,
                    "spread_cautious": block.spread.cautious,
                    "to_show": "equality" if need.effect is None else "difference",
                    "effect": plan.question.delta if need.effect is None else need.effect,
                    "power": power,
                    "repeats": need.as_seen[index],
                    "repeats_cautious": need.cautious[index],
                }
