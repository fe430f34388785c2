"""Distributions: the primary metric of each run, and the times of steps."""

from collections.abc import Iterator, Sequence
from statistics import median

from gpuagent_collector.compare.comparison import Comparison
from gpuagent_collector.present.human import notation, significant
from gpuagent_collector.report.figures.base import Data, Figure, color, draw_dots, draw_line, fold, safe, short
from gpuagent_collector.report.study import StepTimes
from gpuagent_collector.runs.cells import Block
from gpuagent_collector.runs.data import Run
from gpuagent_common.text import counted

# Width that the runs of a side take, as a share of the distance of two sides.
_SPREAD = 0.6

# Of the labels below the columns together, in a line on a telephone, and of each at least.
_LABELS_CHARACTERS, _LEAST_CHARACTERS = 50, 8

# More runs of a side than these would overlap; evenly chosen ones are drawn.
_MOST_DOTS = 500
_FEW_DOTS = 60


def runs_figure(block: Block, comparison: Comparison) -> Figure | None:
    """Return the primary metric of each run, a column a side, from left to right as they ran; None: no run has it."""
    metric = comparison.figures.primary
    known: dict[str, list[tuple[Run, float]]] = {}
    for cell in block.cells:
        # As they ran.
        for run in sorted(cell.runs, key=lambda run: str(run.started_at)):
            value = comparison.facts.value(run, metric.name)
            if value is not None:
                known.setdefault(cell.side, []).append((run, value))
    if not known:
        return None
    scale = notation([value for found in known.values() for _, value in found], metric.unit)
    sides = comparison.layout.sides
    traces = [
        trace
        for place, (side, found) in enumerate(known.items())
        for trace in _dots(place, sides.index(side), side, found, scale.divisor)
    ]
    title = metric.titled(comparison.request.stat)
    most = max(_LEAST_CHARACTERS, _LABELS_CHARACTERS // len(known))
    layout = {
        "showlegend": False,
        "xaxis": {
            "tickvals": list(range(len(known))),
            "ticktext": [fold(f"{side} (n {len(found)})", most) for side, found in known.items()],
            "tickangle": 0,
            "range": [-0.6, len(known) - 0.4],
            "showgrid": False,
            "zeroline": False,
        },
        "yaxis": {"ticksuffix": f" {safe(scale.symbol)}", "zeroline": False},
    }
    runs = "; ".join(f"{side}: {counted(len(found), 'run')}" for side, found in known.items())
    return Figure(title=f"{title}, each run", description=f"{title} of each run. {runs}", data=traces, layout=layout)


def _dots(place: int, index: int, side: str, found: Sequence[tuple[Run, float]], divisor: float) -> Iterator[Data]:
    """Yield a side's runs as dots, and their median as a line over them."""
    shown = found[:: -(-len(found) // _MOST_DOTS)]
    few = len(shown) <= _FEW_DOTS
    across = [short(place + _SPREAD * ((number + 0.5) / len(shown) - 0.5)) for number in range(len(shown))]
    upwards = [value / divisor for _, value in shown]
    opacity = {"opacity": 1 if few else 0.6}
    repeats = ["" if run.repeat is None else f"repeat {run.repeat}, " for run, _ in shown]
    hover = [safe(f"{side}, {repeat}{run.run_id}") for repeat, (run, _) in zip(repeats, shown, strict=True)]
    yield draw_dots(index, across, upwards, 8 if few else 4, opacity, hovertext=hover, hoverinfo="y+text")
    middle = median(value for _, value in found) / divisor
    line = {"color": color(index) if few else "--text", "width": 2}
    drawn = draw_line(index, [place - 0.4, place + 0.4], [middle, middle])
    yield {**drawn, "line": line, "hovertext": safe(f"median of {side}"), "hoverinfo": "y+text"}


def steps_figure(found: Sequence[StepTimes], sides: Sequence[str]) -> Figure | None:
    """Return the share of steps that took no longer than a time; None: no side reported steps."""
    if not found:
        return None
    # The longest steps would squeeze all others to a line.
    shortest = min(times.seconds[0] for times in found)
    long = max(_quantile(times, 0.99) for times in found)
    scale = notation([long], "seconds")
    margin = max(0.04 * (long - shortest), 0.005 * long)
    layout = {
        "hovermode": "closest",
        "xaxis": {
            "range": [(shortest - margin) / scale.divisor, (long + margin) / scale.divisor],
            "ticksuffix": f" {scale.symbol}",
            "zeroline": False,
        },
        "yaxis": {"range": [0, 101], "ticksuffix": " %", "title": {"text": "of steps"}},
    }
    description = "; ".join(
        f"{times.side}: median {scale.write(_quantile(times, 0.5))}, 95 % within {scale.write(_quantile(times, 0.95))}"
        for times in found
    )
    lines = []
    for times in found:
        last = len(times.seconds) - 1
        line = draw_line(
            sides.index(times.side),
            [short(seconds / scale.divisor) for seconds in times.seconds],
            [short(100 * number / last) for number in range(last + 1)],
            name=safe(f"{times.side} ({significant(times.steps)} steps)"),
            hovertemplate="%{y:.3~g} % of steps within %{x:.4~g}",
        )
        lines.append(line)
    title = "Time of a step: share of steps that took no longer"
    return Figure(title=title, description=description, data=lines, layout=layout)


def _quantile(times: StepTimes, share: float) -> float:
    return times.seconds[round(share * (len(times.seconds) - 1))]
