"""Takes experiment files from elsewhere than the node, and carries them out one after the other."""

import logging
import queue
import threading
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from gpuagent.experiment import plan
from gpuagent.experiment.file import Experiment, parse_experiment
from gpuagent.experiment.gpus import NodeGpus
from gpuagent.experiment.journal import Journal
from gpuagent.experiment.launched import LaunchedExperiment
from gpuagent.experiment.preflight import check_cells
from gpuagent.locations import lock
from gpuagent.runs.planning import Planner
from gpuagent.runs.runner import Runner
from gpuagent.sources.support.nvml_api import OpenNvml
from gpuagent_common.errors import GpuAgentError
from gpuagent_proto.v1.run_pb2 import ExperimentFile, ExperimentState
from gpuagent_proto.v1.telemetry_pb2 import ExperimentOrder, ExperimentReply

_LOG = logging.getLogger(__name__)

# Of how many experiments the agent knows how they ended.
_KEPT = 100


class Launches:
    """The experiments that an agent was given, in the order they came. Runs in a thread of its own.

    They are made as `gpuagent experiment run` makes them, by the same journal: what was interrupted goes on when it is
    begun again, in either way.
    """

    def __init__(self, *, directory: Path, planner: Planner, runner: Runner, python: str, open_nvml: OpenNvml) -> None:
        """Keep journals and files in `directory`; `python` is the one that has the workloads."""
        self._directory = directory
        self._plan = partial(planner.plan, from_owner=False)
        self._runner = runner
        self._python = python
        self._open_nvml = open_nvml
        self._guard = threading.Lock()
        # By name, those launched last behind.
        self._known: dict[str, LaunchedExperiment] = {}
        self._closed = False
        self._queue: queue.SimpleQueue[LaunchedExperiment | None] = queue.SimpleQueue()

    def answer(self, order: ExperimentOrder) -> ExperimentReply:
        """Do what the collector asks for, or say why not."""
        reply = ExperimentReply(request_id=order.request_id)
        try:
            state = self._obey(order)
        except GpuAgentError as error:
            reply.refusal = str(error)
        except Exception as error:  # noqa: BLE001
            # Whatever somebody asks for must not stop the agent.
            _LOG.exception("experiment %s", order.launch.file_name)
            reply.refusal = f"{type(error).__name__}: {error}"
        else:
            reply.has_begun = order.HasField("launch")
            if state is not None:
                reply.state.CopyFrom(state)
        return reply

    def launch(self, file: ExperimentFile) -> ExperimentState:
        """Queue what a file asks for, and return how it stands.

        Raises:
            MisuseError: it is no experiment, says where, or one of its runs makes no sense here.
            GpuAgentError: it is not allowed, is being carried out already, others compute on the GPUs, or the agent
                is stopping.
        """
        experiment = _read(file)
        check_cells(experiment, self._plan)
        # While a run of ours is on, it is the one that computes.
        occupants = [] if file.force or self._runner.processes() else NodeGpus(self._open_nvml).occupants()
        if occupants:
            raise GpuAgentError(f"{'; '.join(occupants)}. --force begins all the same")
        return self._take(experiment, file).state()

    def run(self, _stop: threading.Event) -> None:
        """Carry out what is queued until `close`."""
        while (launched := self._queue.get()) is not None:
            launched.carry_out(
                lambda spec: self._runner.follow(self._plan(spec)),
                lambda run_id: self._runner.cancel([run_id]),
                NodeGpus(self._open_nvml),
                self._python,
            )

    def close(self) -> None:
        """Cancel what runs and waits, and let `run` return after it."""
        with self._guard:
            self._closed = True
            every = list(self._known.values())
            self._queue.put(None)
        for launched in every:
            launched.cancel()

    def _obey(self, order: ExperimentOrder) -> ExperimentState | None:
        if order.HasField("launch"):
            return self.launch(order.launch)
        with self._guard:
            launched = self._known.get(order.cancel or order.look)
        if launched is None:
            return None
        return launched.cancel() if order.cancel else launched.state()

    def _take(self, experiment: Experiment, file: ExperimentFile) -> LaunchedExperiment:
        """Take the experiment's lock, keep its file beside its journal, and queue it."""
        path = self._directory / f"{experiment.name}.jsonl"
        held = f"the runs of {experiment.name} are being made on this node already"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with ExitStack() as undo:
                opened = undo.enter_context(lock(path.with_suffix(".lock"), held=held))
                journal = Journal(path, plan.fingerprint(experiment))
                path.with_suffix(".yaml").write_bytes(file.content)
                launched = LaunchedExperiment(experiment, journal, opened, force=file.force)
                self._enqueue(launched)
                undo.pop_all()
        except OSError as error:
            raise GpuAgentError(f"cannot keep the experiment in {path.parent}: {error.strerror}") from error
        return launched

    def _enqueue(self, launched: LaunchedExperiment) -> None:
        with self._guard:
            if self._closed:
                raise GpuAgentError("the agent on this node is stopping; try again")
            self._known.pop(launched.name, None)
            self._known[launched.name] = launched
            ended = [name for name, each in self._known.items() if each.has_ended]
            for name in ended[: max(0, len(self._known) - _KEPT)]:
                del self._known[name]
            self._queue.put(launched)


def _read(file: ExperimentFile) -> Experiment:
    experiment = parse_experiment(file.content, file.file_name)
    return plan.narrowed(experiment, file.only, name=file.name or None, repeats=file.repeats or None)
