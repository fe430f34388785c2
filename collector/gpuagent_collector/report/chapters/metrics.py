"""All metrics of each block: the baseline beside each other side, and the differences."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from markupsafe import Markup

from gpuagent_collector.compare.answer import part_table, value_legend, value_table
from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.compare.figures import BlockFigures, Row
from gpuagent_collector.compare.tables import count_rows, metric_legend, metric_row
from gpuagent_collector.output.document import Grid
from gpuagent_collector.output.human import significant
from gpuagent_collector.report.pieces import Axis, Pictures, anchor_of, folded, heading, prose, table
from gpuagent_collector.report.study import MOST_BLOCKS, Report
from gpuagent_collector.runs.cells import describe, tell_apart
from gpuagent_collector.statistics.shift import Shift


def write(report: Report) -> Iterator[Markup]:
    """Yield the tables; those of the smaller blocks are folded, and have values alone where they would be too many."""
    comparison = report.comparison
    blocks = comparison.figures.blocks
    tables = 0
    for number, block in enumerate(blocks):
        name = tell_apart(block.block, comparison.layout.blocks)
        tables += len(_others(block))
        pieces = list(_block(block, name, comparison, briefly=number >= MOST_BLOCKS and tables > _MOST_TABLES))
        if number < MOST_BLOCKS:
            yield heading(name, anchor=anchor_of("metrics", number))
            yield from pieces
        else:
            yield folded(name, *pieces, anchor=anchor_of("metrics", number))


# Of ratios, each of 20 kB.
_MOST_TABLES = 50


def _others(block: BlockFigures) -> list[str]:
    """Return the sides that are compared with the block's baseline."""
    return [cell.side for cell in block.block.cells if cell.runs and cell.side != block.block.baseline]


def _block(block: BlockFigures, name: str, comparison: Comparison, *, briefly: bool) -> Iterator[Markup]:
    yield prose(f"Ran as {describe(block.block)}", class_="quiet")
    parts = part_table(block, comparison) if comparison.request.each else None
    if parts:
        yield table(parts, f"{name}: parts of the runs")
    if not comparison.layout.is_compared:
        yield table(value_table(block, comparison), name)
        yield prose(value_legend(comparison, block), class_="quiet")
        return
    if briefly:
        usual = replace(comparison, request=replace(comparison.request, everything=False))
        yield table(value_table(block, usual), name)
        yield prose(f"Ratios and intervals: collector compare --workload {block.block.workload} --all", class_="quiet")
        return
    primary = comparison.figures.primary
    shown = [row for row in block.rows if not row.metric.detail or row.metric.name == primary.name]
    rest = [row for row in block.rows if row not in shown]
    for side in _others(block):
        title = f"{name}: {side} against {block.block.baseline}"
        counts = list(count_rows(block, side, comparison))
        yield _table(title, counts, shown, block, side, comparison)
        if rest:
            further = _table(f"{title}, further metrics", [], rest, block, side, comparison)
            yield folded(f"{len(rest)} more metrics of {side} against {block.block.baseline}", further)
    yield prose(metric_legend(comparison, block), class_="quiet")


def _table(
    title: str,
    counts: Sequence[tuple[str, ...]],
    rows: Sequence[Row],
    block: BlockFigures,
    side: str,
    comparison: Comparison,
) -> Markup:
    """Return a table with a picture of each ratio, all on one axis."""
    cells: list[tuple[str, ...]] = [(*count, "", "", "", "") for count in counts]
    shifts: list[Shift | None] = [None] * len(cells)
    for group, members in groupby(rows, key=lambda row: row.metric.group):
        cells.append((group,))
        shifts.append(None)
        for row in members:
            cells.append(metric_row(row, block, side, comparison, wide=True))
            shifts.append(row.shifts.get(side))
    axis = Axis.over([shift for shift in shifts if shift], comparison.figures.delta)
    baseline = block.block.baseline
    confidence = significant(100 * (1 - comparison.figures.alpha))
    header = ("", baseline, side, f"ratio [{confidence} %]", "change", f"range of {baseline}", f"range of {side}")
    pictures = Pictures(at=4, header=axis.header(), draw=lambda number: axis.draw(shifts[number]))
    return table(Grid(header=header, rows=tuple(cells)), title, pictures=pictures, class_="ranged")
