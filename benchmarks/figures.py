"""Figures of benchmarks, and their notation."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Repeated measurements of one quantity."""

    name: str
    unit: str
    values: Sequence[float]
    note: str = ""
    # The most that the median may be; None: there is no goal.
    goal: float | None = None

    def row(self) -> str:
        """Return the figure as a Markdown table row: name, median, lowest to highest, repeats, note."""
        low, high = min(self.values), max(self.values)
        median = statistics.median(self.values)
        spread = f"{_short(low)} to {_short(high)}"
        note = self.note
        if self.goal is not None:
            note += f"; goal at most {_short(self.goal)}: {'reached' if median <= self.goal else '**missed**'}"
        return f"| {self.name} | {_short(median)} {self.unit} | {spread} | {len(self.values)} | {note} |"


HEADER = "| what | median | lowest to highest | repeats | how |\n|---|---|---|---|---|"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
