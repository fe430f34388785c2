"""The data from which warnings are drawn."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpuagent_collector.compare.figures import Figures
from gpuagent_collector.runs.cells import Layout
from gpuagent_collector.runs.data import Facts, Run
from gpuagent_collector.runs.specs import SpecRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The data that checks read."""

    layout: Layout
    facts: Facts
    figures: Figures
    specs: tuple[SpecRow, ...]

    @property
    def sides(self) -> Mapping[str, list[Run]]:
        """The succeeded runs of each side."""
        return {side: self.layout.runs_of(side) for side in self.layout.sides}

    def sides_where(self, concerns: Callable[[Run], bool]) -> str:
        """Return the number of runs of each side for which `concerns` is true, in words; '' for none."""
        counts = {side: (sum(map(concerns, runs)), len(runs)) for side, runs in self.sides.items()}
        return ", ".join(f"{number} of {runs} {side}" for side, (number, runs) in counts.items() if number)

    def sides_above(self, metric: str, bound: float) -> str:
        """Return the number of runs of each side whose figure is above a bound, in words; '' for none."""
        return self.sides_where(lambda run: (self.facts.value(run, metric) or 0) > bound)

    def highest(self, metric: str) -> float:
        """Return the highest figure of all runs; 0 when no run has it."""
        return max((value for runs in self.sides.values() for value in self.facts.values(runs, metric)), default=0.0)
