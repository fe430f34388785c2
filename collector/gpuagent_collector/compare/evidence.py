"""What warnings are made of, and all that they are drawn from."""

from collections.abc import Callable
from dataclasses import dataclass

from gpuagent_collector.compare.figures import Figures
from gpuagent_collector.compare.specs import SpecRow, runs_of
from gpuagent_collector.runs.cells import Layout
from gpuagent_collector.runs.data import Facts, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that checks look at."""

    layout: Layout
    facts: Facts
    figures: Figures
    specs: tuple[SpecRow, ...]

    def metric(self, run: Run, name: str) -> float | None:
        """Return a figure of a run; None: absent."""
        return self.facts.metrics.get(run.run_id, {}).get(name)

    def sides_where(self, concerns: Callable[[Run], bool]) -> str:
        """Return for how many runs of each side something is so, in words; '' when for none."""
        counts = []
        for side in self.layout.sides:
            runs = runs_of(self.layout, side)
            number = sum(map(concerns, runs))
            if number:
                counts.append(f"{number} of {len(runs)} {side}")
        return ", ".join(counts)

    def highest(self, name: str) -> float:
        """Return the highest figure of all runs; 0 when none has it."""
        runs = (run for side in self.layout.sides for run in runs_of(self.layout, side))
        return max((self.metric(run, name) or 0.0 for run in runs), default=0.0)
