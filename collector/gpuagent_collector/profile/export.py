"""A profile in every format. Names are in full."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

from gpuagent_collector.output.rendering import Rendering
from gpuagent_collector.output.sections import print_sections
from gpuagent_collector.profile.answer import answer
from gpuagent_collector.profile.caveats import find_caveats
from gpuagent_collector.profile.document import build_document
from gpuagent_collector.profile.lanes import Row
from gpuagent_collector.profile.study import Side, Study

# The sides in names of columns.
_LETTERS = "ab"


def render(study: Study, *, top: int) -> Rendering:
    """Return the forms of a profile: CSV has a line for each operation; only the terminal stops after `top` rows."""
    return Rendering(
        sections=partial(build_document, study, top=max(len(table.rows) for table in study.tables)),
        record=partial(_record, study),
        lines=partial(_lines, study),
        show=lambda console: print_sections(console, build_document(study, top=top)),
    )


def _record(study: Study) -> dict[str, Any]:
    return {
        "answer": answer(study),
        "sides": [_side(side) for side in study.sides],
        "differing": {row.title: row.values for row in study.differing},
        "tables": {
            table.lane.name: {
                "total_seconds": table.totals,
                "difference_seconds": table.difference,
                "operations": [_operation(row) for row in table.rows],
            }
            for table in study.tables
        },
        "warnings": [asdict(caveat) for caveat in find_caveats(study)],
    }


def _side(side: Side) -> dict[str, Any]:
    run = side.run
    names = ("workload", "platform", "environment", "image", "interference", "limits")
    return {
        "name": side.name,
        "run_id": run.run_id,
        "median_of": side.runs,
        **{name: getattr(run, name) for name in names},
        "nodes": run.nodes,
        "devices": run.device,
        "parameters": json.loads(run.parameters),
        **side.step_seconds,
    }


def _operation(row: Row) -> dict[str, Any]:
    sides: dict[str, Any] = {}
    for letter, amount in zip(_LETTERS, row.amounts, strict=False):
        sides[f"{letter}_seconds"] = amount.seconds if amount else None
        sides[f"{letter}_share_percent"] = amount.share_percent if amount else None
        sides[f"{letter}_calls"] = amount.calls if amount else None
    compared = {"difference_seconds": row.seconds, "only_on": None if row.only_on is None else _LETTERS[row.only_on]}
    return {"kind": row.kind, "name": row.name, **sides, **(compared if len(row.amounts) > 1 else {})}


def _lines(study: Study) -> Iterator[dict[str, Any]]:
    return ({"table": table.lane.name, **_operation(row)} for table in study.tables for row in table.rows)
