"""Two resources that runs take: time and energy, time and money."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median

from gpuagent_collector.present.human import notation
from gpuagent_collector.present.panel import Axis, Look, Panel, Series
from gpuagent_collector.recommend.ranking import Criterion, find_criteria
from gpuagent_collector.runs.cells import Block
from gpuagent_collector.runs.data import Facts

# Side → its runs, and what each took of either.
Taken = Mapping[str, Sequence[tuple[str, float, float]]]


def frontier_panels(
    block: Block, facts: Facts, sides: Sequence[str], efficient: Collection[str] = ()
) -> Iterator[Panel]:
    """Yield a panel for each thing but time that some run has a figure of; a line joins the efficient sides."""
    criteria = {criterion.name: criterion for criterion in find_criteria(block, facts)}
    time = criteria.pop("time")
    for other in criteria.values():
        # What the runs took of both; without those that lack one.
        taken: dict[str, list[tuple[str, float, float]]] = {}
        for cell in block.cells:
            for run in cell.runs:
                metrics = facts.metrics.get(run.run_id, {})
                x, y = time.of(metrics), other.of(metrics)
                if x is not None and y is not None:
                    taken.setdefault(cell.side, []).append((run.run_id, x, y))
        if taken:
            yield _panel(time, other, taken, sides, efficient)


def _panel(time: Criterion, other: Criterion, taken: Taken, sides: Sequence[str], efficient: Collection[str]) -> Panel:
    x_scale = notation([x for found in taken.values() for _, x, _ in found], time.unit)
    y_scale = notation([y for found in taken.values() for _, _, y in found], other.unit)
    each, medians, described, middles = [], [], [], {}
    for side, found in taken.items():
        index = sides.index(side)
        xs, ys = [x / x_scale.divisor for _, x, _ in found], [y / y_scale.divisor for _, _, y in found]
        hover = [f"{side}, {run_id}" for run_id, _, _ in found]
        each.append(Series(look=Look.SMALL, index=index, xs=xs, ys=ys, hover=hover))
        x, y = middles[side] = median(xs), median(ys)
        text = f"{side}: {x_scale.write(x * x_scale.divisor)}, {y_scale.write(y * y_scale.divisor)}"
        medians.append(Series(look=Look.LARGE, index=index, name=side, xs=[x], ys=[y], hover=[f"median of {text}"]))
        described.append(text)
    line = sorted(middles[side] for side in middles if side in efficient)
    # Where it would rise, one side is better in both, and only too few runs keep that from being shown.
    is_choice = line[1:] and all(before > after for (_, before), (_, after) in pairwise(line))
    joined = [Series(look=Look.BROKEN, xs=[x for x, _ in line], ys=[y for _, y in line])] if is_choice else []
    return Panel(
        title=f"{other.what[0].upper()}{other.what[1:]} by {time.what}, per {time.per}: down and to the left is better",
        description=f"Medians of {time.what} and {other.what} per {time.per}: {'; '.join(described)}",
        x=Axis(title=f"{time.what} per {time.per}", unit=x_scale.symbol, ends=(0, 1.12 * max(max(s.xs) for s in each))),
        y=Axis(
            title=f"{other.what} per {other.per}", unit=y_scale.symbol, ends=(0, 1.12 * max(max(s.ys) for s in each))
        ),
        series=[*joined, *each, *medians],
        height=300,
    )
