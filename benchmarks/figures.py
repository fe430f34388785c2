"""Figures of benchmarks beside their goals and peers, and their notation."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Repeated measurements of one quantity."""

    name: str
    unit: str
    values: Sequence[float]
    note: str = ""
    # The most that the median may be; None: there is no goal.
    goal: float | None = None
    # The same of other programs, measured in the same run.
    peers: str = ""

    def row(self) -> str:
        """Return a row of a Markdown table: name, median with lowest, highest and repeats, goal, peers and note."""
        goal = "–" if self.goal is None else f"at most {short(self.goal)}"
        value = statistics.median(self.values)
        if self.goal is not None:
            goal += ": reached" if value <= self.goal else ": **missed**"
        spread = f"[{short(min(self.values))}, {short(max(self.values))}] ({len(self.values)})"
        beside = "; ".join(filter(None, (self.peers, self.note)))
        return f"| {self.name} | {short(value)} {self.unit} {spread} | {goal} | {beside} |"


HEADER = "| what | median [lowest, highest] (repeats) | goal | peers; how |\n|---|---|---|---|"


def write_table(name: str, table: str) -> None:
    """Put a table into docs/benchmarks.md, between the marks of `make NAME`."""
    text = DOCUMENT.read_text()
    before, begin, rest = text.partition(f"<!-- make {name} -->\n")
    end = f"<!-- end of make {name} -->"
    DOCUMENT.write_text(f"{before}{begin}{table}\n{end}{rest.partition(end)[2]}")


def short(value: float) -> str:
    """Return a number of three digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
