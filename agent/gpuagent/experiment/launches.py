"""Experiments that the collector launches on this node: queued, carried out one after the other, cancelled."""

import logging
import queue
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO

from gpuagent.experiment import plan
from gpuagent.experiment.conduct import (
    Conductor,
    Journal,
    check_cells,
    check_concerns,
    describe_skipped,
    occupant_concerns,
    torch_concerns,
)
from gpuagent.experiment.file import parse_experiment
from gpuagent.experiment.gpus import NodeGpus
from gpuagent.experiment.plan import Trial
from gpuagent.locations import lock
from gpuagent.runs.planning import Planner
from gpuagent.runs.runner import Runner
from gpuagent.sources.support.nvml_api import OpenNvml
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.statuses import RunStatus
from gpuagent_proto.v1.run_pb2 import ExperimentFile, ExperimentState, RunSpec, RunUpdate
from gpuagent_proto.v1.telemetry_pb2 import ExperimentOrder, ExperimentReply

_LOG = logging.getLogger(__name__)

# The agent remembers the ends of this many experiments.
_KEPT = 100

# Executes a run and yields its updates; closing that cancels the run.
Follow = Callable[[RunSpec], Generator[RunUpdate, None, None]]


class _CancelledError(Exception):
    """The experiment was cancelled."""


class LaunchedExperiment:
    """An experiment from the queue to its end. Any thread may look at it and cancel it."""

    def __init__(self, journal: Journal, lock: IO[str], *, force: bool) -> None:
        """Hold `lock` until the end; with `force`, start despite concerns."""
        self.name = journal.experiment.name
        self._journal, self._lock, self._force = journal, lock, force
        self._cancelled = threading.Event()
        self._cancel_run: Callable[[], None] = lambda: None
        self._guard = threading.Lock()
        self._state = ExperimentState(name=self.name, status="queued", planned_runs=len(journal.every))
        self._state.reason = "; ".join(describe_skipped(journal.experiment, journal.lacking))
        self._count()

    def state(self) -> ExperimentState:
        """Return a copy of its state."""
        with self._guard:
            copy = ExperimentState()
            copy.CopyFrom(self._state)
        return copy

    @property
    def has_ended(self) -> bool:
        """True once it has ended."""
        return self._state.status not in ("queued", "running")

    def cancel(self) -> ExperimentState | None:
        """Stop it and its current run, which does not count as made; return the state before, None: it had ended."""
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
        """Make the runs that have not been made, unless it was cancelled in the queue."""
        with self._guard:
            if self._cancelled.is_set():
                return
            self._state.status = "running"
        conductor = Conductor(
            journal=self._journal,
            gpus=gpus,
            submit=lambda spec: self._submit(spec, follow, cancel_run),
            observer=self,
            working_directory="",
            sleep=self._sleep,
        )
        try:
            check_concerns(torch_concerns(self._journal.experiment, python, gpus), force=self._force)
            conductor.run()
        except _CancelledError:
            self._end("cancelled")
        except GpuAgentError as error:
            self._end("failed", str(error))
        except Exception as error:  # noqa: BLE001
            # A defect in one experiment must not stop the agent.
            _LOG.exception("experiment %s", self.name)
            self._end("failed", f"{type(error).__name__}: {error}")
        else:
            self._end("incomplete" if self._journal.left() else "complete")

    def wait(self, _trial: Trial, reason: str) -> None:
        """Store why the next run waits."""
        self._set(doing=reason)

    def begin(self, trial: Trial) -> None:
        """Store the current run."""
        self._set(doing=trial.describe())

    def end(self, _trial: Trial, _update: RunUpdate, _seconds: float, _cool_down_seconds: float) -> None:
        """Count a run that is in the journal."""
        self._set(doing="")
        self._count()

    def note(self, words: str) -> None:
        """Store why runs are left out."""
        self._set(reason=words)

    def _set(self, **fields: str) -> None:
        with self._guard:
            for name, value in fields.items():
                setattr(self._state, name, value)

    def _submit(
        self, spec: RunSpec, follow: Follow, cancel_run: Callable[[str], None]
    ) -> Generator[RunUpdate, None, None]:
        """Execute a run. One that is cancelled with the experiment does not count as made."""
        self._sleep(0)
        for update in follow(spec):
            self._set(run_id=update.run_id)
            self._cancel_run = partial(cancel_run, update.run_id)
            if self._cancelled.is_set():
                cancel_run(update.run_id)  # the cancellation came before the run was known
            if update.status == RunStatus.CANCELLED.value:
                self._sleep(0)
            yield update

    def _sleep(self, seconds: float) -> None:
        if self._cancelled.wait(seconds):
            raise _CancelledError

    def _count(self) -> None:
        done = self._journal.ended()
        left_seconds = self._journal.expected_seconds(self._journal.left())
        with self._guard:
            self._state.ended_runs = len(done)
            self._state.failed_runs = sum(each.status != "succeeded" for each in done)
            if self._journal.done:
                self._state.left_seconds = left_seconds

    def _end(self, status: str, reason: str = "") -> None:
        self._lock.close()  # before the end is visible, so that it can be launched again at once
        with self._guard:
            self._state.status, self._state.doing = status, ""
            self._state.reason = reason or self._state.reason
            self._state.ClearField("left_seconds")


class Launches:
    """The experiments that the agent received, in the order they came. Runs in a thread of its own.

    `gpuagent experiment run` uses the same journals: an interrupted experiment resumes when it is started again, in
    either way.
    """

    def __init__(
        self, *, directory: Path, place: str, planner: Planner, runner: Runner, python: str, open_nvml: OpenNvml
    ) -> None:
        """Keep journals and files in `directory`; `place` has platform and node, and `python` has the workloads."""
        self._directory, self._place = directory, place
        self._plan = partial(planner.plan, from_owner=False)
        self._runner = runner
        self._python = python
        self._open_nvml = open_nvml
        self._guard = threading.Lock()
        # By name, the latest launch last.
        self._known: dict[str, LaunchedExperiment] = {}
        self._closed = False
        self._queue: queue.SimpleQueue[LaunchedExperiment | None] = queue.SimpleQueue()

    def answer(self, order: ExperimentOrder) -> ExperimentReply:
        """Carry out the collector's order, or return why not."""
        reply = ExperimentReply(request_id=order.request_id)
        state: ExperimentState | None = None
        try:
            if order.HasField("launch"):
                state, reply.has_begun = self.launch(order.launch), True
            else:
                with self._guard:
                    launched = self._known.get(order.cancel or order.look)
                if launched:
                    state = launched.cancel() if order.cancel else launched.state()
        except GpuAgentError as error:
            reply.refusal = str(error)
        except Exception as error:  # noqa: BLE001
            # An order must not stop the agent.
            _LOG.exception("experiment %s", order.launch.file_name)
            reply.refusal = f"{type(error).__name__}: {error}"
        if state is not None:
            reply.state.CopyFrom(state)
        return reply

    def launch(self, file: ExperimentFile) -> ExperimentState:
        """Queue the experiment of a file, and return its state.

        Raises:
            MisuseError: the file is no experiment, with the place, or one of its runs makes no sense here.
            GpuAgentError: it is not allowed or already running, other processes use the GPUs, or the agent is stopping.
        """
        parsed = parse_experiment(file.content, file.file_name)
        whole = plan.narrowed(parsed, (), name=file.name or None, repeats=file.repeats or None)
        experiment = plan.narrowed(whole, file.only)
        lacking = check_cells(experiment, self._plan, NodeGpus(self._open_nvml))
        # During a run of ours, that run is the one that computes.
        if not self._runner.processes():
            check_concerns(occupant_concerns(experiment, NodeGpus(self._open_nvml)), force=file.force)
        path = self._directory / f"{experiment.name}.jsonl"
        held = f"the runs of {experiment.name} are being made on this node already"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with ExitStack() as undo:
                opened = undo.enter_context(lock(path.with_suffix(".lock"), held=held))
                journal = Journal(path, whole, experiment, lacking, self._place)
                path.with_suffix(".yaml").write_bytes(file.content)
                launched = LaunchedExperiment(journal, opened, force=file.force)
                with self._guard:
                    if self._closed:
                        raise GpuAgentError("the agent on this node is stopping; try again")
                    self._known.pop(launched.name, None)
                    self._known[launched.name] = launched
                    ended = [name for name, each in self._known.items() if each.has_ended]
                    for name in ended[: max(0, len(self._known) - _KEPT)]:
                        del self._known[name]
                    self._queue.put(launched)
                undo.pop_all()
        except OSError as error:
            raise GpuAgentError(f"cannot keep the experiment in {path.parent}: {error.strerror}") from error
        return launched.state()

    def run(self, _stop: threading.Event) -> None:
        """Carry out the queue until `close`."""
        while (launched := self._queue.get()) is not None:
            launched.carry_out(
                lambda spec: self._runner.follow(self._plan(spec)),
                lambda run_id: self._runner.cancel([run_id]),
                NodeGpus(self._open_nvml),
                self._python,
            )

    def close(self) -> None:
        """Cancel the running and queued experiments, and let `run` return after that."""
        with self._guard:
            self._closed = True
            every = list(self._known.values())
            self._queue.put(None)
        for launched in every:
            launched.cancel()
