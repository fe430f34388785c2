"""The metrics of a block as a table: a baseline, another side, and how far apart they lie."""

from collections.abc import Iterator
from itertools import groupby

from gpuagent_collector.compare.answer import spoken
from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.compare.counts import Counts, count
from gpuagent_collector.compare.figures import BlockFigures, Figure, Row
from gpuagent_collector.compare.verdict_table import is_same, write_shift
from gpuagent_collector.output.document import Grid
from gpuagent_collector.output.human import Notation, change, notation, significant
from gpuagent_collector.output.values import ABSENT
from gpuagent_collector.runs.cells import Cell
from gpuagent_collector.statistics.shift import Scale, Shift

_INDENT = " "


def metric_table(block: BlockFigures, side: str, comparison: Comparison, *, wide: bool) -> Grid:
    """Return what stands behind both sides, and a row for each metric under the heading of its group."""
    baseline = block.block.baseline
    header = ["", baseline, side, f"ratio [{_confidence(comparison)} %]"]
    header += ["change", f"range of {baseline}", f"range of {side}"] if wide else []
    rows: list[tuple[str, ...]] = [
        (*cells, *[""] * (len(header) - len(cells))) for cells in count_rows(block, side, comparison)
    ]
    for group, members in groupby(_shown(block, comparison), key=lambda row: row.metric.group):
        rows += [(group,), *(metric_row(row, block, side, comparison, wide=wide) for row in members)]
    return Grid(header=tuple(header), rows=tuple(rows))


def metric_legend(comparison: Comparison, block: BlockFigures) -> str:
    """Return what the figures of a block are."""
    shifts = [shift for row in block.rows for shift in row.shifts.values()]
    stat, hidden = comparison.request.stat, len(block.rows) - len(list(_shown(block, comparison)))
    sentences = [
        "Steady state only: what was sampled counts in each run's measured phase, start-up and warm-up apart.",
        f"{stat.value}: of those samples." if stat else "",
        f"Medians over runs; ratios with their {_confidence(comparison)} % interval (Hodges-Lehmann, Mann-Whitney).",
        "Δ: a difference, where zeros allow no ratio."
        if any(shift.scale is Scale.DIFFERENCE and not is_same(shift) for shift in shifts)
        else "",
        "[–]: so few runs bound nothing." if any(shift.low is None for shift in shifts) else "",
        "*: the metric that was tested, with the interval of its test."
        if any(row.metric is comparison.figures.primary for row in block.rows)
        else "",
        f"--all shows {hidden} more." if hidden else "",
    ]
    return " ".join(filter(None, sentences))


def _confidence(comparison: Comparison) -> str:
    return significant(100 * (1 - comparison.figures.alpha))


def _shown(block: BlockFigures, comparison: Comparison) -> Iterator[Row]:
    for row in block.rows:
        if comparison.request.everything or not row.metric.detail or row.metric is comparison.figures.primary:
            yield row


def count_rows(block: BlockFigures, side: str, comparison: Comparison) -> Iterator[tuple[str, ...]]:
    """Yield what stands behind the figures of the baseline and of another side, a line a kind of thing."""
    cells = {cell.side: cell for cell in block.block.cells}
    both = [_counts(cells[name], comparison) for name in (block.block.baseline, side)]
    primary = spoken(comparison.figures.primary, comparison.request.stat)
    for title, write in (
        ("Runs that succeeded", lambda counts: str(counts.succeeded)),
        (f"{_INDENT}without {primary}", lambda counts: str(counts.missing or "")),
        ("Failed", _failed),
        ("Not ended", lambda counts: str(counts.unfinished or "")),
        ("Nodes", lambda counts: str(counts.nodes)),
        ("Different GPUs", lambda counts: str(counts.devices or "")),
    ):
        written = [write(counts) for counts in both]
        if any(written):
            yield (title, *(text or ABSENT for text in written))


def _counts(cell: Cell, comparison: Comparison) -> Counts:
    return count(cell, comparison.facts, comparison.figures.primary)


def _failed(counts: Counts) -> str:
    return ", ".join(f"{number} {status.replace('_', ' ')}" for status, number in counts.failed.items())


def metric_row(row: Row, block: BlockFigures, side: str, comparison: Comparison, *, wide: bool) -> tuple[str, ...]:
    """Return the cells of a metric: its title, both medians, the ratio; `wide` adds the change and both ranges."""
    baseline = block.block.baseline
    figures = [row.figures.get(baseline), row.figures.get(side)]
    scale = notation([figure.median for figure in figures if figure], row.metric.unit)
    shift = row.shifts.get(side)
    tested = row.metric is comparison.figures.primary
    cells = [f"{_INDENT}{row.metric.titled(comparison.request.stat)}{' *' if tested else ''}"]
    cells += [_median(figure, scale, block) for figure in figures]
    cells += [write_shift(shift, scale) if shift else ABSENT]
    if wide:
        cells += [_change(shift), *(_range(figure, scale) for figure in figures)]
    return tuple(cells)


def _median(figure: Figure | None, scale: Notation, block: BlockFigures) -> str:
    if figure is None:
        return ABSENT
    runs = next(len(cell.runs) for cell in block.block.cells if cell.side == figure.side)
    fewer = f" (n {figure.runs})" if figure.runs != runs else ""
    return scale.write(figure.median) + fewer


def _range(figure: Figure | None, scale: Notation) -> str:
    return ABSENT if figure is None else f"{scale.write_bare(figure.lowest)} to {scale.write(figure.highest)}"


def _change(shift: Shift | None) -> str:
    return change(shift.estimate) if shift and shift.scale is Scale.RATIO else ABSENT
