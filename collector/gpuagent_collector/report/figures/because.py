"""Waterfalls: the parts from one side to another, of a step, a run, energy or cost."""

from collections.abc import Sequence

from gpuagent_collector.compare.because import Because
from gpuagent_collector.compare.parts import waterfall
from gpuagent_collector.present.panel import Axis, Bar, Panel


def because_panel(because: Because, sides: Sequence[str]) -> Panel:
    """Return a bar for the baseline, one for each part that leads on from there, and one for the other side."""
    unit, found = waterfall(because)
    bars = []
    for bar in found:
        index = sides.index(bar.title) if bar.is_whole else None
        bars.append(Bar(bar.title, bar.text, bar.begin, bar.end, index))
    # In print, texts are to the right of the bars.
    highest = max(max(bar.begin, bar.end) for bar in bars)
    lowest = min(bar.end for bar in bars)
    titled = "; ".join(f"{bar.name}: {bar.text}" for bar in bars)
    return Panel(
        title=f"From {because.baseline} to {because.side}: per {because.of}",
        description=f"Parts of the difference per {because.of}: {titled}",
        x=Axis(unit=unit, ends=(min(0, 1.05 * lowest), 1.18 * highest)),
        bars=bars,
        height=60 + 38 * len(bars),
    )
