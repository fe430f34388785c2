"""A comparison in every format."""

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

from gpuagent_collector.compare.answer import answer
from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.compare.described import part_figures
from gpuagent_collector.compare.figures import BlockFigures, Figure, Row, count
from gpuagent_collector.compare.page import build_document, print_comparison
from gpuagent_collector.output.rendering import Rendering
from gpuagent_collector.runs.cells import CANCELLED, Block
from gpuagent_collector.statistics.shift import Shift


def render(comparison: Comparison) -> Rendering:
    """Return the forms of a comparison: CSV has a line for each metric of each cell, JSON all but the series."""
    return Rendering(
        sections=partial(build_document, comparison, wide=True),
        record=partial(_record, comparison),
        lines=partial(_lines, comparison),
        show=lambda console: print_comparison(console, comparison),
    )


def _record(comparison: Comparison) -> dict[str, Any]:
    figures, layout, stat = comparison.figures, comparison.layout, comparison.request.stat
    return {
        "answer": answer(comparison),
        "by": layout.facet.name,
        "sides": layout.sides,
        "where": comparison.request.where,
        "primary_metric": figures.primary.name,
        "stat": stat.value if stat else None,
        "delta": figures.delta,
        "alpha": figures.alpha,
        "tests": [
            {
                **_identity(test.block),
                "baseline": test.baseline.side,
                "side": test.other.side,
                "pairs": test.pairs,
                "verdict": test.judgement.verdict.value,
                **_shift(test.judgement.shift),
                "p_value": test.judgement.shift.p_value,
                "level": test.judgement.shift.alpha,
            }
            for test in figures.tests
        ],
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


def _identity(block: Block) -> dict[str, Any]:
    return {"workload": block.workload, "parameters": block.parameters, "held": block.held}


def _block(figures: BlockFigures, comparison: Comparison) -> dict[str, Any]:
    cells = {cell.side: cell for cell in figures.block.cells}
    primary = comparison.figures.primary
    unsuccessful = {
        side: {status: number for status, number in cell.others.items() if status != CANCELLED}
        for side, cell in cells.items()
    }
    return {
        **_identity(figures.block),
        "baseline": figures.block.baseline,
        "runs": {side: [run.run_id for run in cell.runs] for side, cell in cells.items()},
        "unsuccessful": {side: failed for side, failed in unsuccessful.items() if failed},
        "counts": {side: asdict(count(cell, comparison.facts, primary)) for side, cell in cells.items()},
        "metrics": [
            {
                **_metric(row, comparison),
                "better": row.metric.better.value if row.metric.better else None,
                "sides": {side: _side(row, side) for side in row.figures},
            }
            for row in figures.rows
        ],
        "parts": {
            side: {
                part: {metric: _figure(figure) for metric, figure in of_part.items()} for part, of_part in parts.items()
            }
            for side, parts in part_figures(figures, comparison).items()
        },
    }


def _figure(figure: Figure) -> dict[str, Any]:
    return {"n": figure.runs, "median": figure.median, "lowest": figure.lowest, "highest": figure.highest}


def _metric(row: Row, comparison: Comparison) -> dict[str, Any]:
    stat = comparison.request.stat
    return {
        "metric": row.metric.name,
        "unit": row.unit,
        "stat": stat.value if stat and row.metric.quantity else None,
    }


def _side(row: Row, side: str) -> dict[str, Any]:
    figure, shift = row.figures[side], row.shifts.get(side)
    known = _figure(figure)
    return known if shift is None else {**known, **_shift(shift)}


def _shift(shift: Shift) -> dict[str, Any]:
    return {"scale": shift.scale.value, "estimate": shift.estimate, "low": shift.low, "high": shift.high}


# The columns of a side, in order.
_ABSENT = dict.fromkeys(("n", "median", "lowest", "highest", "scale", "estimate", "low", "high"))


def _lines(comparison: Comparison) -> Iterator[dict[str, Any]]:
    verdicts = {(id(test.block), test.other.side): test.judgement.verdict.value for test in comparison.figures.tests}
    each = comparison.request.each is not None
    for block in comparison.figures.blocks:
        for row in block.rows:
            tested = row.metric.name == comparison.figures.primary.name
            for side in row.figures:
                yield {
                    **_identity(block.block),
                    "by": comparison.layout.facet.name,
                    "side": side,
                    **({"part": None} if each else {}),
                    "baseline": block.block.baseline,
                    **_metric(row, comparison),
                    **(_ABSENT | _side(row, side)),
                    "verdict": verdicts.get((id(block.block), side)) if tested else None,
                }
        yield from _part_lines(block, comparison)


def _part_lines(block: BlockFigures, comparison: Comparison) -> Iterator[dict[str, Any]]:
    """Yield a line for each metric of each part, with the columns of the others."""
    rows = {row.metric.name: row for row in block.rows}
    for side, parts in part_figures(block, comparison).items():
        for part, figures in parts.items():
            for name, figure in figures.items():
                if name in rows:
                    yield {
                        **_identity(block.block),
                        "by": comparison.layout.facet.name,
                        "side": side,
                        "part": part,
                        "baseline": block.block.baseline,
                        **_metric(rows[name], comparison),
                        **(_ABSENT | _figure(figure)),
                        "verdict": None,
                    }
