"""Waterfalls: the parts from one side to another, of a step, a run, energy or cost."""

from collections.abc import Sequence

from gpuagent_collector.compare.because import Because, describe_bars, waterfall
from gpuagent_collector.report.figures.base import Figure, color, safe, short


def because_figure(because: Because, sides: Sequence[str]) -> Figure:
    """Return a bar for the baseline, one for each part that leads on from there, and one for the other side."""
    bars = waterfall(because)
    scale, texts = describe_bars(bars, because.unit)
    places = list(range(len(bars)))
    colors = []
    for bar in bars:
        side = because.baseline if bar is bars[0] else because.side
        colors.append("--quiet" if bar.name else color(sides.index(side)))
    titled = [f"{bar.title}: {text}" for bar, text in zip(bars, texts, strict=True)]
    return Figure(
        title=f"From {because.baseline} to {because.side}: per {because.of}",
        description=f"Parts of the difference per {because.of}: {'; '.join(titled)}",
        data=[
            {
                "type": "bar",
                "orientation": "h",
                "showlegend": False,
                "y": places,
                "base": [short(bar.begin / scale.divisor) for bar in bars],
                "x": [short((bar.end - bar.begin) / scale.divisor) for bar in bars],
                "marker": {"color": colors},
                "text": [safe(text) for text in texts],
                "textposition": "auto",
                "hovertext": [safe(text) for text in titled],
                "hoverinfo": "text",
            }
        ],
        layout={
            "xaxis": {
                "ticksuffix": f" {safe(scale.symbol)}",
                # Room for the text of the last bars.
                "range": [0, 1.15 * max(bar.end for bar in bars) / scale.divisor],
            },
            "yaxis": {
                "autorange": "reversed",
                "tickvals": places,
                "ticktext": [safe(bar.title) for bar in bars],
                "showgrid": False,
            },
        },
        height=60 + 26 * len(bars),
    )
