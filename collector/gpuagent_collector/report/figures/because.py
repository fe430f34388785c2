"""Waterfalls: the parts from one side to another, of a step, a run, energy or cost."""

from collections.abc import Sequence

from gpuagent_collector.compare.because import Because, waterfall
from gpuagent_collector.report.figures.base import Figure, color, safe, short


def because_figure(because: Because, sides: Sequence[str]) -> Figure:
    """Return a bar for the baseline, one for each part that leads on from there, and one for the other side."""
    unit, bars = waterfall(because)
    places = list(range(len(bars)))
    ends = [color(sides.index(side)) for side in (because.baseline, because.side)]
    titled = [f"{bar.title}: {bar.text}" for bar in bars]
    return Figure(
        title=f"From {because.baseline} to {because.side}: per {because.of}",
        description=f"Parts of the difference per {because.of}: {'; '.join(titled)}",
        data=[
            {
                "type": "bar",
                "orientation": "h",
                "showlegend": False,
                "y": places,
                "base": [short(bar.begin) for bar in bars],
                "x": [short(bar.end - bar.begin) for bar in bars],
                "marker": {"color": [ends[0], *["--quiet"] * len(because.parts), ends[1]]},
                "text": [safe(bar.text) for bar in bars],
                "textposition": "outside",
                "hovertext": [safe(text) for text in titled],
                "hoverinfo": "text",
            }
        ],
        layout={
            "xaxis": {
                "ticksuffix": f" {safe(unit)}",
                # Room for the text of the last bars.
                "range": [0, 1.15 * max(bar.end for bar in bars)],
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
