"""A profile for programs: JSON, CSV and Markdown. Names are in full."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from gpuagent_collector.compare.export import write_csv, write_markdown
from gpuagent_collector.profile.answer import answer
from gpuagent_collector.profile.caveats import find_caveats
from gpuagent_collector.profile.document import build_document
from gpuagent_collector.profile.lanes import Row, Table
from gpuagent_collector.profile.study import Side, Study

# What the sides are called in names of columns.
_LETTERS = "ab"


def to_json(study: Study) -> str:
    """Return everything that is shown, and all operations, as one JSON object."""
    found = {
        "answer": answer(study),
        "sides": [_side(side) for side in study.sides],
        "differing": {row.title: [list(values) for values in row.values] for row in study.differing},
        "tables": {table.lane.name: _table(table) for table in study.tables},
        "warnings": [asdict(caveat) for caveat in find_caveats(study)],
    }
    return json.dumps(found, indent=2)


def to_csv(study: Study) -> str:
    """Return a header and a line for each operation of each table."""
    return write_csv(list(_lines(study)))


def to_markdown(study: Study) -> str:
    """Return the document with its tables, all rows of them, in GitHub's Markdown."""
    return write_markdown(build_document(study, top=max(len(table.rows) for table in study.tables)))


def _side(side: Side) -> dict[str, Any]:
    run = side.run
    return {
        "name": side.name,
        "run_id": run.run_id,
        "median_of": side.runs,
        **{
            name: getattr(run, name)
            for name in ("workload", "platform", "environment", "image", "interference", "limits")
        },
        "nodes": run.nodes,
        "devices": run.device,
        "parameters": json.loads(run.parameters),
        **side.step_seconds,
    }


def _table(table: Table) -> dict[str, Any]:
    return {
        "total_seconds": list(table.totals),
        "difference_seconds": table.difference,
        "operations": [_operation(row) for row in table.rows],
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
    for table in study.tables:
        for row in table.rows:
            yield {"table": table.lane.name, **_operation(row)}
