"""Values without a test: of one side, or of sides that run different work."""

from collections.abc import Mapping
from itertools import groupby

from gpuagent_collector.choices import PartKind
from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.compare.figures import BlockFigures, Figure, Row, make_figure
from gpuagent_collector.compare.tables import shown_rows
from gpuagent_collector.metrics import METRICS
from gpuagent_collector.output.document import Grid, in_short, read_warnings
from gpuagent_collector.output.human import Notation, notation
from gpuagent_collector.output.values import ABSENT
from gpuagent_collector.runs.cells import Cell, tell_apart
from gpuagent_collector.runs.words import spoken, statuses
from gpuagent_common.text import counted

_INDENT = " "

# The columns of the overview, as far as some run has them.
_KEY_METRICS = ("throughput", "step_seconds", "gpu_utilization_percent", "gpu_memory_used_bytes")


def describe_sides(comparison: Comparison, *, most: int) -> str:
    """Return the primary metric of each block and side in words, and that nothing was tested."""
    layout, primary = comparison.layout, comparison.figures.primary
    what = f"One side only ({layout.sides[0]})" if len(layout.sides) == 1 else f"Described by {layout.facet.spoken}"
    sentences = []
    for block in comparison.figures.blocks:
        row = next((row for row in block.rows if row.metric.name == primary.name), None)
        for side, figure in row.figures.items() if row else ():
            name = tell_apart(block.block, layout.blocks, briefly=True)
            where = "" if layout.facet.describes or len(layout.sides) == 1 else f" {layout.facet.preposition} {side}"
            scale = notation([figure.median], row.unit if row else "")
            spread = ""
            if figure.runs > 1:
                spread = f", the median of {figure.runs:,} runs from {scale.write_bare(figure.lowest)}"
                spread += f" to {scale.write_bare(figure.highest)}"
            title = spoken(primary, comparison.request.stat)
            sentences.append(f"{name}: {title} is {scale.write(figure.median)}{where}{spread}.")
    if not sentences:
        sentences = [f"No run has {primary.name}."]
    short = in_short(sentences, most=most, where="table has")
    return " ".join([f"{what}: values, no test.", *short, *read_warnings(len(comparison.caveats))])


def overview_table(comparison: Comparison) -> Grid:
    """Return a row for each side of each block, with the metrics that matter most."""
    blocks, primary = comparison.figures.blocks, comparison.figures.primary.name
    wanted = list(dict.fromkeys((primary, *_KEY_METRICS)))[: len(_KEY_METRICS)]
    present = {row.metric.name: row.metric for block in blocks for row in block.rows}
    metrics = [present[name] for name in wanted if name in present]
    rows = []
    for block in blocks:
        figures = {row.metric.name: row for row in block.rows}
        for cell in block.block.cells:
            name = tell_apart(block.block, comparison.layout.blocks, briefly=True)
            several = len(comparison.layout.sides) > 1 and not comparison.layout.facet.describes
            cells = (_written(figures.get(metric.name), cell.side) for metric in metrics)
            rows.append((f"{name} {cell.side}" if several else name, _runs(cell), *cells))
    titles = (metric.titled(comparison.request.stat) for metric in metrics)
    return Grid(header=("workload", "runs", *titles), rows=tuple(rows))


def _runs(cell: Cell) -> str:
    """Return the number of runs that count, and of the others by status."""
    counted_here = {run.run_id for run in cell.runs}
    others = "" if len(counted_here) == sum(cell.others.values()) else statuses(cell.others)
    return ", ".join(filter(None, (f"{len(cell.runs):,}" if cell.runs else "", others)))


def _written(row: Row | None, side: str) -> str:
    figure = row.figures.get(side) if row else None
    return notation([figure.median], row.unit).write(figure.median) if row and figure else ABSENT


def value_table(block: BlockFigures, comparison: Comparison) -> Grid:
    """Return each metric of a block with its median, range and number of runs."""
    rows: list[tuple[str, ...]] = []
    sides = [cell.side for cell in block.block.cells if cell.runs]
    alone = all(figure.runs == 1 for row in block.rows for figure in row.figures.values())
    for group, members in groupby(shown_rows(block, comparison), key=lambda row: row.metric.group):
        rows.append((group,))
        for row in members:
            scale = notation([figure.median for figure in row.figures.values()], row.unit)
            title = f"{_INDENT}{row.metric.titled(comparison.request.stat)}"
            figures = [row.figures.get(side) for side in sides]
            if alone:
                rows.append((title, *(scale.write(figure.median) if figure else ABSENT for figure in figures)))
            elif len(sides) == 1 and figures[0]:
                rows.append((title, *_in_columns(figures[0], scale)))
            else:
                rows.append((title, *(write_figure(figure, scale) for figure in figures)))
    header = ("", *sides) if alone or len(sides) > 1 else ("", "median", "lowest", "highest", "runs")
    return Grid(header=header, rows=tuple(rows), keys=1)


def _in_columns(figure: Figure, scale: Notation) -> tuple[str, ...]:
    if figure.runs == 1:
        return (scale.write(figure.median), "", "", "1")
    bounds = (figure.lowest, figure.highest)
    return (scale.write(figure.median), *map(scale.write_bare, bounds), f"{figure.runs:,}")


def write_figure(figure: Figure | None, scale: Notation, *, unit: bool = True) -> str:
    """Return median, range and number of runs: 1,234 images/s [1,200, 1,250] (7); of one run only its value."""
    if figure is None:
        return ABSENT
    middle = (scale.write if unit else scale.write_bare)(figure.median)
    if figure.runs == 1:
        return f"{middle} (1)"
    return f"{middle} [{scale.write_bare(figure.lowest)}, {scale.write_bare(figure.highest)}] ({figure.runs:,})"


def value_legend(comparison: Comparison, block: BlockFigures) -> str:
    """Return the meaning of a block's values."""
    hidden = len(block.rows) - len(list(shown_rows(block, comparison)))
    measured = any(row.metric.name == "measure_seconds" for row in block.rows)
    return " ".join(
        filter(
            None,
            (
                "Samples count in each run's measured phase, not in start-up and warm-up." if measured else "",
                f"--all shows {counted(hidden, 'more metric')}." if hidden else "",
            ),
        )
    )


def spoken_part(kind: PartKind) -> str:
    """Return the kind of a part within a sentence."""
    return "GPU" if kind is PartKind.GPU else kind.value


# Side → name of a part → metric → figure.
PartFigures = Mapping[str, Mapping[str, Mapping[str, Figure]]]


def part_figures(block: BlockFigures, comparison: Comparison) -> PartFigures:
    """Return the figures of each part of a block's runs: medians over the runs that have that part."""
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for cell in block.block.cells:
        for run in cell.runs:
            for part, figures in comparison.parts.get(run.run_id, {}).items():
                for metric, value in figures.items():
                    of_side = found.setdefault(cell.side, {}).setdefault(part, {})
                    of_side.setdefault(metric, []).append(value)
    return {
        side: {
            part: {metric: make_figure(side, values) for metric, values in of_part.items()}
            for part, of_part in parts.items()
        }
        for side, parts in found.items()
    }


def part_table(block: BlockFigures, comparison: Comparison) -> Grid | None:
    """Return each metric of a block with a column for each part of each side; None: no run has figures of parts."""
    found = part_figures(block, comparison)
    columns = [(side, part) for side, parts in found.items() for part in parts]
    if not columns:
        return None
    several = len(comparison.layout.sides) > 1
    shown = {row.metric.name for row in shown_rows(block, comparison)}
    units = {row.metric.name: row.unit for row in block.rows}
    rows: list[tuple[str, ...]] = []
    for group, members in groupby((metric for metric in METRICS if metric.name in shown), key=lambda one: one.group):
        of_group = []
        for metric in members:
            figures = [found[side][part].get(metric.name) for side, part in columns]
            if any(figures):
                scale = notation([figure.median for figure in figures if figure], units[metric.name])
                cells = (scale.write(figure.median) if figure else ABSENT for figure in figures)
                of_group.append((f"{_INDENT}{metric.title}", *cells))
        rows += [(group,), *of_group] if of_group else []
    names = (f"{side} {part}" if several else part for side, part in columns)
    return Grid(header=("", *names), rows=tuple(rows), keys=1)
