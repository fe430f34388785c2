"""Takes runs, executes them one after the other, and records their lives."""

import contextlib
import logging
import queue
import shutil
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path

from gpuagent.clock import Clock
from gpuagent.images.records import ImageRecords
from gpuagent.runs.events import Digest
from gpuagent.runs.execution import Execution, Outcome
from gpuagent.runs.output import STREAMS, Piece, read_piece
from gpuagent.runs.planning import PlannedRun
from gpuagent.runs.recording import RunRecorder
from gpuagent.runs.tails import Tails
from gpuagent.sampling.rows import RecordBuffer
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.statuses import FINAL_STATUSES, RunStatus
from gpuagent_proto.v1.run_pb2 import RunUpdate

_LOG = logging.getLogger(__name__)

# How many run directories stay on the node, with the whole output and whatever the workload put there.
KEPT_RUNS = 100

# How much run directories may hold together; the last run's stays whatever its size.
KEPT_BYTES = 1024**3

Listener = Callable[[RunUpdate], None]


def has_ended(update: RunUpdate) -> bool:
    """Return whether `update` is its run's last."""
    return update.status in FINAL_STATUSES


class Runner:
    """One measured run at a time, in the order they came. Runs in a thread of its own."""

    def __init__(
        self,
        *,
        directory: Path,
        images: ImageRecords,
        buffer: RecordBuffer,
        tails: Tails,
        clock: Clock,
        flush: Callable[[], None],
    ) -> None:
        self._directory = directory
        self._recorder = RunRecorder(images=images, buffer=buffer, clock=clock)
        self._tails = tails
        self._flush = flush
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[tuple[Execution, Listener] | None] = queue.SimpleQueue()
        self._executions: dict[str, Execution] = {}
        # Those of `_executions` that have not begun.
        self._waiting: dict[str, Listener] = {}
        self._closed = False

    def processes(self) -> Sequence[tuple[str, int]]:
        """Return (run_id, pid) of the process that each active run descends from."""
        with self._lock:
            active = [(run_id, execution.root_pid) for run_id, execution in self._executions.items()]
        return [(run_id, pid) for run_id, pid in active if pid is not None]

    def submit(self, plans: Sequence[PlannedRun], listener: Listener = lambda _update: None) -> list[str]:
        """Queue `plans`; `listener` hears of each change. Return the runs' identities.

        Raises:
            GpuAgentError: the agent is stopping, or a run directory cannot be made.
        """
        executions = [Execution(plan, self._directory / plan.run_id) for plan in plans]
        for execution in executions:
            _make_directory(execution.directory)
        with self._lock:
            if self._closed:
                raise GpuAgentError("the agent on this node is stopping; try again")
            for execution in executions:
                self._announce(execution, listener)
        # Nothing begins before the spool knows of it: a run is told of even if the agent is killed in its first second.
        self._flush()
        for execution in executions:
            self._queue.put((execution, listener))
        return [plan.run_id for plan in plans]

    def follow(self, plans: Sequence[PlannedRun]) -> Generator[RunUpdate, None, None]:
        """Queue `plans` and yield what becomes of them until they have ended; closing the iterator cancels them.

        Raises:
            GpuAgentError: as `submit`.
        """
        updates: queue.SimpleQueue[RunUpdate] = queue.SimpleQueue()
        run_ids = self.submit(plans, updates.put)
        running = len(run_ids)
        try:
            while running:
                update = _next(updates)
                running -= has_ended(update)
                yield update
        finally:
            self.cancel(run_ids)

    def _announce(self, execution: Execution, listener: Listener) -> None:
        plan = execution.plan
        self._tails.announce(plan.run_id, execution.directory)
        self._recorder.record_request(plan)
        self._record(execution, Outcome(status=RunStatus.QUEUED), listener)
        self._executions[plan.run_id] = execution
        self._waiting[plan.run_id] = listener

    def cancel(self, run_ids: Sequence[str]) -> None:
        """Stop runs, and end at once those that wait for their turn; unknown ones, and those over, are passed over."""
        with self._lock:
            wanted = [self._executions[run_id] for run_id in run_ids if run_id in self._executions]
            waiting = [(run, self._waiting.pop(run.plan.run_id)) for run in wanted if run.plan.run_id in self._waiting]
            for execution, _ in waiting:
                del self._executions[execution.plan.run_id]
        for execution in wanted:
            execution.cancel()
        for execution, listener in waiting:
            self._record(execution, Outcome(status=RunStatus.CANCELLED), listener)
            self._tails.close(execution.plan.run_id)

    def run(self, stop: threading.Event) -> None:
        """Execute what is queued until `close`."""
        while (item := self._queue.get()) is not None:
            execution, listener = item
            if stop.is_set():
                self.cancel([execution.plan.run_id])
            self._execute(execution, listener)

    def close(self) -> None:
        """Cancel what runs and is queued, and let `run` return after it."""
        with self._lock:
            self._closed = True
            run_ids = list(self._executions)
        self.cancel(run_ids)
        self._queue.put(None)

    def recover(self, run_id: str, directory: Path, offsets: dict[str, int]) -> None:
        """End a run that an earlier agent process left open: read the rest of what it reported, and call it lost."""
        self._tails.open(run_id, directory, offsets)
        self._read_to_end(run_id)
        self._recorder.record_state(run_id, Outcome(status=RunStatus.LOST, reason=_why_lost(directory)))
        self._tails.close(run_id)

    def _execute(self, execution: Execution, listener: Listener) -> None:
        run_id = execution.plan.run_id
        with self._lock:
            if self._waiting.pop(run_id, None) is None:
                return  # it was cancelled while it waited
        self._execute_now(execution, listener)
        with self._lock:
            del self._executions[run_id]

    def _execute_now(self, execution: Execution, listener: Listener) -> None:
        run_id = execution.plan.run_id
        self._tails.open(run_id, execution.directory)
        self._record(execution, Outcome(status=RunStatus.RUNNING), listener)
        outcome = _run(execution)
        self._read_to_end(run_id)
        self._recorder.record_leftovers(execution)
        self._record(execution, _require_results(outcome, execution.plan, self._tails.digest(run_id)), listener)
        self._tails.close(run_id)
        self._flush()
        self.tidy()

    def tidy(self) -> None:
        """Delete the oldest run directories beyond those that are kept; what they reported is in the store."""
        with self._lock:
            active = set(self._executions)
        finished = [path for path in self._directory.glob("*") if path.name not in active]
        kept_bytes = 0
        for position, directory in enumerate(sorted(finished, key=_modified, reverse=True)):
            kept_bytes += _size(directory)
            if position >= KEPT_RUNS or (position and kept_bytes > KEPT_BYTES):
                shutil.rmtree(directory, ignore_errors=True)

    def read_output(self, run_id: str, stream: str, offset_bytes: int | None) -> Piece:
        """Return a piece of what a run's program wrote to `stream`, from `offset_bytes` or shortly before its end.

        Raises:
            GpuAgentError: there is no such stream, or nothing is kept of the run here.
        """
        if stream not in STREAMS:
            raise GpuAgentError(f"a run has no {stream!r}; it has {' and '.join(STREAMS)}")
        with self._lock:
            has_ended = run_id not in self._executions
        # Looked up among the directories there are: a run's identity that comes from elsewhere is no path.
        if run_id not in (path.name for path in self._directory.glob("*")):
            raise GpuAgentError(f"this node keeps no output of run {run_id!r}, or not any more")
        return read_piece(self._directory / run_id / stream, offset_bytes, has_ended=has_ended)

    def _read_to_end(self, run_id: str) -> None:
        """Flush until the run's events files have been read to their ends."""
        before: Mapping[str, int] | None = None
        while (offsets := self._tails.offsets(run_id)) != before:
            before = offsets
            self._flush()

    def _record(self, execution: Execution, outcome: Outcome, listener: Listener) -> None:
        plan = execution.plan
        self._recorder.record_state(plan.run_id, outcome)
        listener(
            RunUpdate(
                run_id=plan.run_id,
                repeat=plan.repeat,
                status=outcome.status.value,
                exit_code=outcome.exit_code,
                reason=outcome.reason or "",
                run_directory=str(execution.directory),
            )
        )


def _next(updates: "queue.SimpleQueue[RunUpdate]") -> RunUpdate:
    """Return the next update, once there is one.

    It looks up each second: a wait without end in the main thread would also keep it from a signal that the kernel
    hands to another thread, as it does when a suspended process is continued to be ended.
    """
    while True:
        with contextlib.suppress(queue.Empty):
            return updates.get(timeout=1)


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True)
    except FileExistsError as error:
        raise GpuAgentError(
            f"this node takes part in run {directory.name} already, or did: start one task a node, with --ranks for "
            "its GPUs, and give each run its own --job"
        ) from error
    except OSError as error:
        raise GpuAgentError(f"cannot make the run directory {directory}: {error.strerror}") from error


def _run(execution: Execution) -> Outcome:
    try:
        return execution.run()
    except GpuAgentError as error:
        return Outcome(status=RunStatus.FAILED, reason=str(error))
    except Exception as error:  # noqa: BLE001
        # Whatever goes wrong in starting one run must not stop the agent.
        _LOG.exception("run %s", execution.plan.run_id)
        return Outcome(status=RunStatus.FAILED, reason=f"{type(error).__name__}: {error}")


def _why_lost(directory: Path) -> str:
    if not directory.exists():
        return "the agent was killed, and its run directory is gone"
    has_begun = (directory / STREAMS[0]).exists()
    return f"the agent was killed {'while it ran' if has_begun else 'before it began'}"


def _require_results(outcome: Outcome, plan: PlannedRun, digest: Digest) -> Outcome:
    """Turn success into failure when the workload did not report what it has to."""
    missing = [name for name in plan.required_results if name not in digest.results]
    if outcome.status is not RunStatus.SUCCEEDED or not missing:
        return outcome
    return Outcome(status=RunStatus.FAILED, exit_code=outcome.exit_code, reason=f"it reported no {', '.join(missing)}")


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _size(directory: Path) -> int:
    sizes = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(OSError):
            sizes += path.lstat().st_size
    return sizes
