"""Figures of benchmarks beside their goals and peers, and their notation."""

import re
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
    # Empty: it cannot be measured on this machine.
    values: Sequence[float]
    note: str = ""
    # The most that the median may be; None: there is no goal.
    goal: float | None = None
    # The same of other programs, measured in the same run.
    peers: str = ""

    def row(self) -> str:
        """Return a row of a Markdown table: name, median, goal, peers, lowest to highest, repeats, note."""
        goal = "–" if self.goal is None else f"at most {short(self.goal)}"
        median, spread = "not measured here", "–"
        if self.values:
            value = statistics.median(self.values)
            median = f"{short(value)} {self.unit}"
            spread = f"{short(min(self.values))} to {short(max(self.values))}"
            if self.goal is not None:
                goal += ": reached" if value <= self.goal else ": **missed**"
        cells = (self.name, median, goal, self.peers or "–", spread, len(self.values), self.note)
        return f"| {' | '.join(map(str, cells))} |"


HEADER = "| what | median | goal | peers | lowest to highest | repeats | how |\n|---|---|---|---|---|---|---|"


def documented(section: str, row: str) -> str:
    """Return the first figure of a row of docs/benchmarks.md and its day, for what cannot be measured here.

    Raises:
        LookupError: the document has no such row.
    """
    text = DOCUMENT.read_text().partition(f"## {section}\n")[2].partition("\n## ")[0]
    figure = re.search(rf"^\| {re.escape(row)} \| ([^|]+) \|", text, re.MULTILINE)
    day = re.search(r"\d{4}-\d\d-\d\d", text)
    if not figure or not day:
        raise LookupError(f"docs/benchmarks.md has no row {row!r} with a day in {section!r}")
    return f"{figure[1]} of {day[0]} in docs/benchmarks.md"


def write_table(name: str, table: str) -> None:
    """Put a table into docs/benchmarks.md, between the marks of `make NAME`."""
    text = DOCUMENT.read_text()
    before, begin, rest = text.partition(f"<!-- make {name} -->\n")
    end = f"<!-- end of make {name} -->"
    DOCUMENT.write_text(f"{before}{begin}{table}\n{end}{rest.partition(end)[2]}")


def short(value: float) -> str:
    """Return a number of three digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
