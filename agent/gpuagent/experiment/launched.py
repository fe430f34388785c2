"""One experiment that was launched from elsewhere than the node: how it stands, and what becomes of it."""

import logging
import threading
from collections.abc import Callable, Generator
from typing import IO

from gpuagent.experiment import plan
from gpuagent.experiment.conduct import Conductor, expected_seconds
from gpuagent.experiment.file import Experiment
from gpuagent.experiment.gpus import NodeGpus
from gpuagent.experiment.journal import Journal
from gpuagent.experiment.plan import Trial
from gpuagent.experiment.preflight import torch_concerns
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.statuses import RunStatus
from gpuagent_proto.v1.run_pb2 import ExperimentState, RunSpec, RunUpdate

_LOG = logging.getLogger(__name__)

# Has a run executed and yields what becomes of it; closing that cancels the run.
Follow = Callable[[RunSpec], Generator[RunUpdate, None, None]]


class _CancelledError(Exception):
    """Nobody wants the experiment any more."""


class LaunchedExperiment:
    """An experiment from the queue to its end. Any thread may look at it and cancel it."""

    def __init__(self, experiment: Experiment, journal: Journal, lock: IO[str], *, force: bool) -> None:
        """Keep `lock` until it has ended; with `force`, begin whatever speaks against it."""
        self.name = experiment.name
        self._experiment = experiment
        self._journal = journal
        self._lock = lock
        self._force = force
        self._every = [trial for block in plan.trials(experiment) for trial in block]
        self._cancelled = threading.Event()
        self._cancel_run: Callable[[], None] = lambda: None
        self._guard = threading.Lock()
        self._state = ExperimentState(name=experiment.name, status="queued", planned_runs=len(self._every))
        self._count()

    def state(self) -> ExperimentState:
        """Return how it stands."""
        with self._guard:
            copy = ExperimentState()
            copy.CopyFrom(self._state)
        return copy

    @property
    def has_ended(self) -> bool:
        """Whether nothing more is to come of it."""
        return self._state.status not in ("queued", "running")

    def cancel(self) -> ExperimentState | None:
        """Stop it, with the run that is made, which will be made again; return how it stood, None: it had ended."""
        with self._guard:
            if self.has_ended:
                return None
            was_queued = self._state.status == "queued"
            self._cancelled.set()
        before = self.state()
        if was_queued:
            self._end("cancelled")
        self._cancel_run()
        return before

    def carry_out(self, follow: Follow, cancel_run: Callable[[str], None], gpus: NodeGpus, python: str) -> None:
        """Make the runs that have not been made, unless it was cancelled while it waited."""
        with self._guard:
            if self._cancelled.is_set():
                return
            self._state.status = "running"
        try:
            self._refuse_for_torch(gpus, python)
            self._conductor(follow, cancel_run, gpus).run()
        except _CancelledError:
            self._end("cancelled")
        except GpuAgentError as error:
            self._end("failed", str(error))
        except Exception as error:  # noqa: BLE001
            # Whatever goes wrong in one experiment must not stop the agent.
            _LOG.exception("experiment %s", self.name)
            self._end("failed", f"{type(error).__name__}: {error}")
        else:
            self._end("complete" if len(self._journal.done) == len(self._every) else "incomplete")

    def waits(self, _trial: Trial, words: str) -> None:
        """Note for what the next run waits, as the conductor tells it."""
        with self._guard:
            self._state.doing = words

    def begins(self, trial: Trial) -> None:
        """Note what is made now."""
        with self._guard:
            self._state.doing = trial.describe()

    def ended(self, _trial: Trial, _update: RunUpdate, _seconds: float, _cool_down_seconds: float) -> None:
        """Note that a run is in the journal."""
        with self._guard:
            self._state.doing = ""
        self._count()

    def says(self, words: str) -> None:
        """Note why runs are left out."""
        with self._guard:
            self._state.reason = words

    def _refuse_for_torch(self, gpus: NodeGpus, python: str) -> None:
        concerns = [] if self._force else list(torch_concerns(self._experiment, python, gpus))
        if concerns:
            raise GpuAgentError(f"{'; '.join(concerns)}. --force begins all the same")

    def _conductor(self, follow: Follow, cancel_run: Callable[[str], None], gpus: NodeGpus) -> Conductor:
        return Conductor(
            experiment=self._experiment,
            journal=self._journal,
            gpus=gpus,
            submit=lambda spec: self._submit(spec, follow, cancel_run),
            teller=self,
            working_directory="",
            sleep=self._sleep,
        )

    def _submit(
        self, spec: RunSpec, follow: Follow, cancel_run: Callable[[str], None]
    ) -> Generator[RunUpdate, None, None]:
        """Have a run made. What is cancelled with the experiment does not count as made."""
        self._sleep(0)
        for update in follow(spec):
            self._note_run(update.run_id, cancel_run)
            if update.status == RunStatus.CANCELLED.value:
                self._sleep(0)
            yield update

    def _note_run(self, run_id: str, cancel_run: Callable[[str], None]) -> None:
        with self._guard:
            self._state.run_id = run_id
            self._cancel_run = lambda: cancel_run(run_id)
        if self._cancelled.is_set():
            cancel_run(run_id)  # whoever cancelled it did so before we knew the run

    def _sleep(self, seconds: float) -> None:
        if self._cancelled.wait(seconds):
            raise _CancelledError

    def _count(self) -> None:
        done = self._journal.done
        left = [trial.cell for trial in self._every if not self._journal.ended(trial)]
        with self._guard:
            self._state.ended_runs = len(done)
            self._state.failed_runs = sum(1 for each in done if each.status != "succeeded")
            if done:
                self._state.left_seconds = expected_seconds(done, left)

    def _end(self, status: str, reason: str = "") -> None:
        self._lock.close()  # before anybody hears of it, so that it can be launched again at once
        with self._guard:
            self._state.status, self._state.doing = status, ""
            self._state.reason = reason or self._state.reason
            self._state.ClearField("left_seconds")
