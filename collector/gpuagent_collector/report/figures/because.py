"""Waterfalls: the parts from one side to another, of a step, a run, energy or cost."""

from collections.abc import Sequence

from gpuagent_collector.compare.because import Because
from gpuagent_collector.compare.parts import waterfall
from gpuagent_collector.present.panel import Axis, Bar, Panel

# Of the axis for a text beside a bar, as on a telephone.
_ROOM = 0.28


def because_panel(because: Because, sides: Sequence[str]) -> Panel:
    """Return a bar for the baseline, one for each part that leads on from there, and one for the other side."""
    unit, found = waterfall(because)
    bars = []
    for bar in found:
        index = sides.index(bar.title) if bar.is_whole else None
        bars.append(Bar(bar.title, bar.text, bar.begin, bar.end, index))
    # Room for the texts: of what falls to the left of its bar, of all others to the right.
    highest = max(max(bar.begin, bar.end) for bar in bars)
    lowest = min((bar.end for bar in bars if bar.end < bar.begin), default=highest)
    titled = "; ".join(f"{bar.name}: {bar.text}" for bar in bars)
    return Panel(
        title=f"From {because.baseline} to {because.side}: per {because.of}",
        description=f"Parts of the difference per {because.of}: {titled}",
        x=Axis(unit=unit, ends=(min(0, lowest - _ROOM * highest), (1 + _ROOM) * highest)),
        bars=bars,
        height=60 + 26 * len(bars),
    )
