"""A plan for programs: JSON, CSV and Markdown."""

import json
from collections.abc import Iterator
from typing import Any

from gpuagent_collector.compare.export import write_csv, write_markdown
from gpuagent_collector.sample_size.document import build_document
from gpuagent_collector.sample_size.study import POWERS, BlockPlan, Need, Plan


def to_json(plan: Plan) -> str:
    """Return everything that is shown as one JSON object."""
    question = plan.question
    return json.dumps(
        {
            "metric": plan.metric.name,
            "stat": question.stat.value if question.stat else None,
            "where": question.where,
            "comparisons": question.comparisons,
            "level": question.level,
            "needs": list(_lines(plan)),
        },
        indent=2,
    )


def to_csv(plan: Plan) -> str:
    """Return a header and a line for each number of repeats."""
    return write_csv([{**line, "parameters": json.dumps(line["parameters"])} for line in _lines(plan)])


def to_markdown(plan: Plan) -> str:
    """Return the document with its tables in GitHub's Markdown."""
    return write_markdown(build_document(plan))


def _lines(plan: Plan) -> Iterator[dict[str, Any]]:
    for block in plan.blocks:
        for need in block.needs:
            for index, power in enumerate(POWERS):
                yield _line(block, need, plan) | {
                    "power": power,
                    "repeats": need.as_seen[index],
                    "repeats_cautious": need.cautious[index],
                }


def _line(block: BlockPlan, need: Need, plan: Plan) -> dict[str, Any]:
    return {
        "workload": block.block.workload,
        "parameters": block.block.parameters,
        "runs": block.runs,
        "spread": block.spread.seen,
        "spread_cautious": block.spread.cautious,
        "to_show": "equality" if need.effect is None else "difference",
        "effect": plan.question.delta if need.effect is None else need.effect,
    }
