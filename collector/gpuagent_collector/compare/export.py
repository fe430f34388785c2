"""A comparison for programs: JSON, CSV and Markdown."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gpuagent_collector.compare.answer import answer
from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.compare.counts import count
from gpuagent_collector.compare.figures import BlockFigures, Row, Test
from gpuagent_collector.compare.page import build_document
from gpuagent_collector.output.as_markdown import escaped
from gpuagent_collector.output.document import Bullets, Grid, Paragraph, Section
from gpuagent_collector.output.text import harmless
from gpuagent_collector.runs.cells import Block
from gpuagent_collector.statistics.shift import Shift


def to_json(comparison: Comparison) -> str:
    """Return everything that is shown, series apart, as one JSON object."""
    return json.dumps(_object(comparison), indent=2, default=str)


def to_csv(comparison: Comparison) -> str:
    """Return a header and a line for each metric of each cell."""
    return write_csv(list(_lines(comparison)))


def write_csv(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return a header and the lines; there is at least one."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def to_markdown(comparison: Comparison) -> str:
    """Return the document with its tables in GitHub's Markdown."""
    return write_markdown(build_document(comparison, wide=True))


def write_markdown(sections: Iterable[Section]) -> str:
    """Return a document with its tables in GitHub's Markdown."""
    texts = []
    for section in sections:
        texts.append(f"## {_safe(section.heading)}")
        texts += map(_markdown, section.parts)
    return "\n\n".join(texts) + "\n"


def _object(comparison: Comparison) -> dict[str, Any]:
    figures, layout = comparison.figures, comparison.layout
    return {
        "answer": answer(comparison),
        "by": layout.facet.name,
        "sides": layout.sides,
        "where": comparison.request.where,
        "primary_metric": figures.primary.name,
        "stat": comparison.request.stat.value if comparison.request.stat else None,
        "delta": figures.delta,
        "alpha": figures.alpha,
        "tests": [_test(test) for test in figures.tests],
        "geometric_means": [
            {"side": one.side, "baseline": one.baseline, **asdict(one.mean)} for one in figures.overall
        ],
        "blocks": [_block(block, comparison) for block in figures.blocks],
        "specs": [
            {"property": row.title, "differs": row.differs, "values": dict(zip(layout.sides, row.values, strict=True))}
            for row in comparison.specs
        ],
        "left_out": [asdict(one) for one in layout.left_out],
        "warnings": [asdict(caveat) for caveat in comparison.caveats],
    }


def _test(test: Test) -> dict[str, Any]:
    return {
        **_identity(test.block),
        "baseline": test.baseline.side,
        "side": test.other.side,
        "verdict": test.judgement.verdict.value,
        **_shift(test.judgement.shift),
        "p_value": test.judgement.shift.p_value,
        "level": test.judgement.shift.alpha,
    }


def _identity(block: Block) -> dict[str, Any]:
    return {"workload": block.workload, "parameters": block.parameters, "held": block.held}


def _block(figures: BlockFigures, comparison: Comparison) -> dict[str, Any]:
    cells = {cell.side: cell for cell in figures.block.cells}
    return {
        **_identity(figures.block),
        "baseline": figures.block.baseline,
        "runs": {side: [run.run_id for run in cell.runs] for side, cell in cells.items()},
        "unsuccessful": {side: cell.others for side, cell in cells.items() if cell.others},
        "counts": {
            side: asdict(count(cell, comparison.facts, comparison.figures.primary)) for side, cell in cells.items()
        },
        "metrics": [_metric(row, comparison) for row in figures.rows],
    }


def _stat(row: Row, comparison: Comparison) -> str | None:
    """Return the statistic over time that was asked for, where the metric has one."""
    stat = comparison.request.stat
    return stat.value if stat and row.metric.quantity else None


def _metric(row: Row, comparison: Comparison) -> dict[str, Any]:
    sides = {}
    for side, figure in row.figures.items():
        known = {"n": figure.runs, "median": figure.median, "lowest": figure.lowest, "highest": figure.highest}
        shift = row.shifts.get(side)
        sides[side] = known if shift is None else {**known, **_shift(shift)}
    better = row.metric.better.value if row.metric.better else None
    stat = _stat(row, comparison)
    return {"metric": row.metric.name, "unit": row.metric.unit, "stat": stat, "better": better, "sides": sides}


def _shift(shift: Shift) -> dict[str, Any]:
    return {"scale": shift.scale.value, "estimate": shift.estimate, "low": shift.low, "high": shift.high}


def _lines(comparison: Comparison) -> Iterator[dict[str, Any]]:
    verdicts = {(id(test.block), test.other.side): test.judgement.verdict.value for test in comparison.figures.tests}
    for block in comparison.figures.blocks:
        for row in block.rows:
            for side, figure in row.figures.items():
                shift = row.shifts.get(side)
                tested = row.metric is comparison.figures.primary
                yield {
                    "workload": block.block.workload,
                    "parameters": json.dumps(block.block.parameters),
                    "held": json.dumps(block.block.held),
                    "by": comparison.layout.facet.name,
                    "side": side,
                    "baseline": block.block.baseline,
                    "metric": row.metric.name,
                    "unit": row.metric.unit,
                    "stat": _stat(row, comparison),
                    "n": figure.runs,
                    "median": figure.median,
                    "lowest": figure.lowest,
                    "highest": figure.highest,
                    **(_shift(shift) if shift else dict.fromkeys(("scale", "estimate", "low", "high"))),
                    "verdict": verdicts.get((id(block.block), side)) if tested else None,
                }


def _markdown(part: Paragraph | Bullets | Grid) -> str:
    if isinstance(part, Paragraph):
        return _safe(part.text)
    if isinstance(part, Bullets):
        return "\n".join(f"- {_safe(text)}  \n  → {remedy}" for text, remedy in part.points)
    rule = ["---:" if index >= part.figures_from else "---" for index in range(len(part.header))]
    lines = [[*map(_safe, part.header)], rule, *(_cells(row, len(part.header)) for row in part.rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(row: Sequence[str], columns: int) -> list[str]:
    return [f"**{_safe(row[0])}**", *[""] * (columns - 1)] if len(row) == 1 else [*map(_safe, row)]


def _safe(text: str) -> str:
    return escaped(harmless(text))
