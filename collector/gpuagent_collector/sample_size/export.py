"""A plan in every format."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from gpuagent_collector.output.rendering import Rendering
from gpuagent_collector.sample_size.document import build_document
from gpuagent_collector.sample_size.study import POWERS, Plan


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
                    "spread": block.spread.seen,
                    "spread_cautious": block.spread.cautious,
                    "to_show": "equality" if need.effect is None else "difference",
                    "effect": plan.question.delta if need.effect is None else need.effect,
                    "power": power,
                    "repeats": need.as_seen[index],
                    "repeats_cautious": need.cautious[index],
                }
