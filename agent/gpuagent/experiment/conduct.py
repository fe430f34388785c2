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
from gpuagent.experiment.plan import Trial, spec, trials
from gpuagent_proto.v1.run_pb2 import RunSpec, RunUpdate

# Has the node's agent execute a run, and yields the run's updates.
Submit = Callable[[RunSpec], Iterator[RunUpdate]]


class Observer(Protocol):
    """A display of an experiment's progress."""

    def wait(self, trial: Trial, reason: str) -> None:
        """Show that a run is next, and why it waits."""
        ...

    def begin(self, trial: Trial) -> None:
        """Show that a run begins."""
        ...

    def end(self, trial: Trial, update: RunUpdate, seconds: float, cool_down_seconds: float) -> None:
        """Show that a run has ended after `seconds`, and the seconds of the cool-down before it."""
        ...

    def note(self, words: str) -> None:
        """Show something else that is worth a line."""
        ...


@dataclass(slots=True, kw_only=True)
class Conductor:
    """The execution of one experiment."""

    experiment: Experiment
    journal: Journal
    gpus: NodeGpus
    submit: Submit
    observer: Observer
    working_directory: str
    # Sleeps for the seconds of a cool-down.
    sleep: Callable[[float], None] = time.sleep

    def run(self) -> bool:
        """Make every run that has not been made; return whether all repeats are complete.

        A run that ended is never repeated, even if it failed. A cell that failed too often is given up, and a repeat
        that would exceed the budget does not begin.
        """
        for block in trials(self.experiment):
            left = self.journal.left(block)
            if left and (reason := self._exceeded_budget(left)):
                self.observer.note(f"the budget ends it before repeat {left[0].repeat}: {reason}")
                return False
            for trial in left:
                if self.journal.failures(trial.cell.key) >= self.experiment.failures:
                    self.observer.note(f"given up after {self.experiment.failures} failures: {trial.cell.describe()}")
                else:
                    self._make(trial)
        return True

    def _make(self, trial: Trial) -> None:
        before_joules = self.gpus.joules()
        waits_seconds = time.monotonic()
        self.gpus.cool_down(self.experiment.cool_down, partial(self.observer.wait, trial), self.sleep)
        begins_seconds = time.monotonic()
        self.observer.begin(trial)
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
        self.observer.end(trial, update, ended_seconds - begins_seconds, begins_seconds - waits_seconds)

    def _exceeded_budget(self, left: Sequence[Trial]) -> str | None:
        """Return in words the budget that the rest of a repeat would exceed, from the runs before; None: no budget."""
        budget, done = self.experiment.budget, self.journal.done
        hours = (sum(one.seconds for one in done) + self.journal.expected_seconds(left)) / 3600
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
