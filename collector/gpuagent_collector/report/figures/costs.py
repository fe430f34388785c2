"""Charts of two resources that runs take: time and energy, time and money."""

from collections.abc import Sequence
from statistics import median

from gpuagent_collector.present.human import notation
from gpuagent_collector.recommend.ranking import Criterion, find_criteria
from gpuagent_collector.report.figures.base import Data, Figure, draw_dots, safe, short
from gpuagent_collector.runs.cells import Block, Cell
from gpuagent_collector.runs.data import Facts

_FIRST = "time"


def cost_figures(block: Block, facts: Facts, sides: Sequence[str]) -> list[Figure]:
    """Return a chart for each thing but time that some run has a figure of."""
    criteria = {criterion.name: criterion for criterion in find_criteria(block, facts)}
    time = criteria.pop(_FIRST)
    found = [_figure(time, other, block, facts, sides) for other in criteria.values()]
    return [figure for figure in found if figure]


# Run, and what it took of either.
Taken = Sequence[tuple[str, float, float]]


def _figure(time: Criterion, other: Criterion, block: Block, facts: Facts, sides: Sequence[str]) -> Figure | None:
    taken = {cell.side: found for cell in block.cells if (found := taken_by(cell, time, other, facts))}
    if not taken:
        return None
    xs = [x for found in taken.values() for _, x, _ in found]
    ys = [y for found in taken.values() for _, _, y in found]
    x_scale, y_scale = notation(xs, time.unit), notation(ys, other.unit)
    traces = [
        trace
        for side, found in taken.items()
        for trace in _dots(sides.index(side), side, found, x_scale.divisor, y_scale.divisor)
    ]
    layout = {
        "hovermode": "closest",
        "xaxis": {
            "rangemode": "tozero",
            "ticksuffix": f" {x_scale.symbol}",
            "title": {"text": f"{time.what} per {time.per}"},
        },
        "yaxis": {
            "rangemode": "tozero",
            "ticksuffix": f" {safe(y_scale.symbol)}",
            "title": {"text": f"{other.what} per {other.per}"},
        },
    }
    medians = "; ".join(
        f"{side}: {x_scale.write(median(x for _, x, _ in found))}, {y_scale.write(median(y for _, _, y in found))}"
        for side, found in taken.items()
    )
    return Figure(
        title=f"{other.what[0].upper()}{other.what[1:]} by {time.what}, per {time.per}: down and to the left is better",
        description=f"Medians of {time.what} and {other.what} per {time.per}: {medians}",
        data=traces,
        layout=layout,
        height=300,
    )


def taken_by(cell: Cell, time: Criterion, other: Criterion, facts: Facts) -> Taken:
    """Return what the runs of a cell took of two criteria; without runs that lack one."""
    found = [(run.run_id, facts.metrics.get(run.run_id, {})) for run in cell.runs]
    both = [(run_id, time.of(metrics), other.of(metrics)) for run_id, metrics in found]
    return [(run_id, x, y) for run_id, x, y in both if x is not None and y is not None]


def _dots(index: int, side: str, found: Taken, x_divisor: float, y_divisor: float) -> list[Data]:
    xs, ys = [x / x_divisor for _, x, _ in found], [y / y_divisor for _, _, y in found]
    hover = [safe(f"{side}, {run_id}") for run_id, _, _ in found]
    name, edge = safe(f"{side}, median"), {"line": {"color": "--text", "width": 1.5}}
    each = draw_dots(index, map(short, xs), map(short, ys), 6, {"opacity": 0.6}, hovertext=hover, hoverinfo="x+y+text")
    middle = draw_dots(index, [short(median(xs))], [short(median(ys))], 14, edge, name=name, hoverinfo="x+y+name")
    return [{**each, "showlegend": False}, middle]
