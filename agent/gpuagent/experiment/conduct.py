"""Makes the runs of an experiment, one after the other, within its budget."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from gpuagent.experiment.file import Experiment
from gpuagent.experiment.gpus import NodeGpus
from gpuagent.experiment.journal import Done, Journal
from gpuagent.experiment.plan import Cell, Trial, spec, trials
from gpuagent_proto.v1.run_pb2 import RunSpec, RunUpdate

# Has a run executed by the node's agent, and yields what becomes of it.
Submit = Callable[[RunSpec], Iterator[RunUpdate]]


class Teller(Protocol):
    """Hears how the experiment comes along."""

    def waits(self, trial: Trial, words: str) -> None:
        """A run is next, and waits for what `words` say."""
        ...

    def begins(self, trial: Trial) -> None:
        """A run begins."""
        ...

    def ended(self, trial: Trial, update: RunUpdate, seconds: float, cool_down_seconds: float) -> None:
        """It has ended, after `seconds`, and so long a cool-down before it."""
        ...

    def says(self, words: str) -> None:
        """Something else is worth a line."""
        ...


@dataclass(slots=True, kw_only=True)
class Conductor:
    """Knows what is to be done, and does it."""

    experiment: Experiment
    journal: Journal
    gpus: NodeGpus
    submit: Submit
    teller: Teller
    working_directory: str
    # Waits so many seconds of a cool-down.
    sleep: Callable[[float], None] = time.sleep

    def run(self) -> bool:
        """Make every run that has not been made; return whether all repeats are there.

        What ended is not made again, even where it failed. A cell that failed too often is given up, and a repeat that
        would exceed the budget is not begun.
        """
        for block in trials(self.experiment):
            left = [trial for trial in block if not self.journal.ended(trial)]
            if left and (spent := self._exceeded(left)):
                self.teller.says(f"the budget ends it before repeat {left[0].repeat}: {spent}")
                return False
            for trial in left:
                if self.journal.failures(trial.cell.key) >= self.experiment.failures:
                    self.teller.says(f"given up after {self.experiment.failures} failures: {trial.cell.describe()}")
                else:
                    self._make(trial)
        return True

    def _make(self, trial: Trial) -> None:
        before_joules = self.gpus.joules()
        waits_seconds = time.monotonic()
        self.gpus.cool_down(self.experiment.cool_down, partial(self.teller.waits, trial), self.sleep)
        begins_seconds = time.monotonic()
        self.teller.begins(trial)
        *_, update = self.submit(spec(trial, self.experiment, self.working_directory))
        ended_seconds, after_joules = time.monotonic(), self.gpus.joules()
        self.journal.add(
            Done(
                cell=trial.cell.key,
                repeat=trial.repeat,
                run_id=update.run_id,
                status=update.status,
                seconds=ended_seconds - waits_seconds,
                gpu_joules=None if before_joules is None or after_joules is None else after_joules - before_joules,
            )
        )
        self.teller.ended(trial, update, ended_seconds - begins_seconds, begins_seconds - waits_seconds)

    def _exceeded(self, left: Sequence[Trial]) -> str | None:
        """Return in words which budget the rest of a repeat would exceed, going by the runs before; None: none."""
        budget, done = self.experiment.budget, self.journal.done
        hours = (sum(one.seconds for one in done) + self.seconds_for(left)) / 3600
        if budget.hours is not None and hours > budget.hours:
            return f"it would have taken {hours:.2f} of {budget.hours:g} hours"
        if budget.kilowatt_hours is None or not done:
            return None
        joules = [one.gpu_joules for one in done if one.gpu_joules is not None]
        if len(joules) < len(done):
            return "the GPUs do not count energy, and kilowatt_hours is limited"
        kilowatt_hours = (sum(joules) + len(left) * statistics.mean(joules)) / 3.6e6
        if kilowatt_hours > budget.kilowatt_hours:
            return f"it would have taken {kilowatt_hours:.3g} of {budget.kilowatt_hours:g} kWh"
        return None

    def seconds_for(self, left: Sequence[Trial]) -> float:
        """Return how long runs will take, going by those of the same cell, or else of all; 0 before the first."""
        return expected_seconds(self.journal.done, [trial.cell for trial in left])


def expected_seconds(done: Sequence[Done], left: Sequence[Cell]) -> float:
    """Return how long runs of the cells `left` will take, by the runs before; 0 before the first."""
    if not done:
        return 0.0
    usual = statistics.mean(one.seconds for one in done)
    by_cell: dict[str, list[float]] = {}
    for one in done:
        by_cell.setdefault(one.cell, []).append(one.seconds)
    return sum(statistics.mean(by_cell[cell.key]) if cell.key in by_cell else usual for cell in left)
