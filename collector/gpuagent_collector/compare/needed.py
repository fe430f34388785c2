"""The repeats that would show the largest difference which a comparison leaves open."""

from dataclasses import dataclass
from math import log

import numpy as np

from gpuagent_collector.compare.figures import Figures, Test
from gpuagent_collector.runs.cells import match_runs
from gpuagent_collector.runs.data import Facts
from gpuagent_collector.statistics import repeats
from gpuagent_collector.statistics.shift import Scale
from gpuagent_collector.statistics.verdicts import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """The repeats a side of a new experiment, as `collector plan` computes them.

    Attributes:
        test: the one of the comparison that shows nothing yet.
        percent: the difference to show: that of the estimate, or what counts as equal where that is more.
        comparisons: tested together, over all looks of the experiment.
        repeats: None: more than MOST_REPEATS.
    """

    test: Test
    percent: float
    comparisons: int
    repeats: int | None

    @property
    def words(self) -> str:
        """The repeats to make, for a sentence."""
        return f"more than {repeats.MOST_REPEATS}" if self.repeats is None else str(self.repeats)


def find_needed(figures: Figures, facts: Facts) -> Needed | None:
    """Return the repeats for the largest ratio among the undecided tests; None: no ratio, or no spread is known."""
    undecided = [
        test
        for test in figures.tests
        if test.judgement.verdict in (Verdict.NOT_SHOWN, Verdict.TOO_FEW)
        and test.judgement.shift.scale is Scale.RATIO
        and test.judgement.shift.estimate > 0
    ]
    if not undecided:
        return None
    test = max(undecided, key=lambda each: abs(log(each.judgement.shift.estimate)))
    estimate = test.judgement.shift.estimate
    share = max(estimate - 1, 1 / estimate - 1, figures.delta)
    cells = [cell for cell in test.block.cells if facts.has(cell.runs, figures.primary.name)]
    values = [facts.array(cell.runs, figures.primary.name) for cell in cells]
    if any((of_cell <= 0).any() for of_cell in values):
        return None
    pooled = repeats.pooled_spread(values)
    if pooled is None:
        return None
    made = [] if figures.unpaired else match_runs(*cells)
    together = facts.column([run for repeat in made for run in repeat], figures.primary.name)
    table = together.reshape(-1, len(cells))
    matched = repeats.matched_spread([table[~np.isnan(table).any(axis=1)]], pooled)
    percent = float(f"{100 * share:.1e}")
    comparisons = round(0.05 / figures.alpha * len(figures.tests))
    fewest = repeats.fewest_repeats(
        repeats.repeats_to_differ,
        percent / 100,
        pooled.seen,
        matched.seen if matched else None,
        power=repeats.POWERS[0],
        level=0.05 / comparisons,
    )
    return Needed(test=test, percent=percent, comparisons=comparisons, repeats=fewest)
