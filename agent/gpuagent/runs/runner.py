"""The queue of runs: executed one after the other, with every state recorded."""

import contextlib
import logging
import queue
import shutil
import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from gpuagent.clock import Clock
from gpuagent.errors import AgentEndedError, LockedError
from gpuagent.images.records import ImageRecords
from gpuagent.locations import lock
from gpuagent.runs.elsewhere import Report, read_report, write_shown
from gpuagent.runs.events import Digest, Tails
from gpuagent.runs.execution import Execution
from gpuagent.runs.output import STREAMS, Piece, read_piece
from gpuagent.runs.planning import PlannedRun
from gpuagent.runs.processes import read_unread_end
from gpuagent.runs.recording import RunRecorder
from gpuagent.sampling.rows import RecordBuffer
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.limits import MAX_OPEN_RUNS
from gpuagent_common.statuses import FINAL_STATUSES, RunStatus
from gpuagent_proto.v1.run_pb2 import RunUpdate

_LOG = logging.getLogger(__name__)

# Run directories that stay on the node, with the whole output and all files of the workload.
KEPT_RUNS = 100

# Limit of all run directories together; the last run's always stays.
KEPT_BYTES = 1024**3

# Interval between checks whether another agent's run has ended.
_NODE_POLL_SECONDS = 0.2

Listener = Callable[[RunUpdate], None]

# Delivers rows in the name of another node: its identity, its name, the rows.
DeliverFor = Callable[[str, str, RecordBuffer], None]


def has_ended(update: RunUpdate) -> bool:
    """Return whether `update` is its run's last."""
    return update.status in FINAL_STATUSES


class Runner:
    """An executor of one measured run at a time, in order. `run` needs a thread of its own."""

    def __init__(
        self,
        *,
        directory: Path,
        images: ImageRecords | None,
        buffer: RecordBuffer,
        tails: Tails,
        clock: Clock,
        flush: Callable[[], None],
        deliver_for: DeliverFor,
        node_lock: Path | None = None,
    ) -> None:
        """Prepare; nothing runs before `run`.

        Args:
            images: None: who asked for the runs records their images, and when.
            node_lock: file that is locked during a run, by every agent of this user on this node; None: do not
                wait for other agents.
        """
        self._node_lock = node_lock
        self._directory = directory
        self._clock = clock
        self._deliver_for = deliver_for
        self._recorder = RunRecorder(images=images, buffer=buffer, clock=clock)
        self._tails = tails
        self._flush = flush
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[tuple[Execution, Listener] | None] = queue.SimpleQueue()
        self._executions: dict[str, Execution] = {}
        # Listeners of those in `_executions` that have not begun.
        self._waiting: dict[str, Listener] = {}
        self._closed = False
        self._is_stopping = False

    @property
    def is_busy(self) -> bool:
        """Return whether a run is queued or under way."""
        return bool(self._executions)

    def active(self) -> frozenset[str]:
        """Return the identities of the runs that are queued or under way."""
        with self._lock:
            return frozenset(self._executions)

    def processes(self) -> Sequence[tuple[str, int]]:
        """Return (run_id, pid) of the process that each active run descends from."""
        with self._lock:
            active = [(run_id, execution.root_pid) for run_id, execution in self._executions.items()]
        return [(run_id, pid) for run_id, pid in active if pid is not None]

    def programs(self) -> Collection[int]:
        """Return those of `processes` that are programs of their runs."""
        with self._lock:
            return {one.root_pid for one in self._executions.values() if one.root_is_program and one.root_pid}

    def submit(self, plans: Sequence[PlannedRun], listener: Listener = lambda _update: None) -> list[str]:
        """Queue `plans`, report each change to `listener`, and return the runs' identities.

        Raises:
            AgentEndedError: the agent is stopping.
            MisuseError: a run of this agent, which makes one at a time, started these, and would wait for them.
            GpuAgentError: a run directory cannot be made, or more would be queued than a collector stores.
        """
        around = {plan.job.variables.get("GPUAGENT_RUN_ID") for plan in plans} & self.active()
        if around:
            raise MisuseError(
                f"{around.pop()} is under way and started this run, which would wait for its end: an agent makes one "
                "run at a time; start the program itself"
            )
        if (count := len(self.active()) + len(plans)) > MAX_OPEN_RUNS:
            raise GpuAgentError(f"{count:,} runs would be queued; the limit is {MAX_OPEN_RUNS:,}: wait, or cancel some")
        executions = [Execution(plan, self._directory / plan.run_id) for plan in plans]
        for execution in executions:
            _make_directory(execution.directory)
        with self._lock:
            if self._closed:
                raise AgentEndedError("the agent on this node is stopping; try again")
            for execution in executions:
                plan = execution.plan
                if not plan.job.elsewhere:
                    self._tails.announce(plan.run_id, execution.directory)
                    self._recorder.record_request(plan)
                self._record(execution, RunUpdate(status=RunStatus.QUEUED), listener)
                self._executions[plan.run_id] = execution
                self._waiting[plan.run_id] = listener
        # A run is in the spool before it begins: it is reported even if the agent is killed within its first second.
        self._flush()
        for execution in executions:
            self._queue.put((execution, listener))
        return [plan.run_id for plan in plans]

    def follow(self, plans: Sequence[PlannedRun]) -> Generator[RunUpdate, None, None]:
        """Queue `plans` and yield their updates to their ends; closing the iterator cancels them.

        Raises GpuAgentError: as `submit`.
        """
        updates: queue.SimpleQueue[RunUpdate] = queue.SimpleQueue()
        run_ids = self.submit(plans, updates.put)
        running = len(run_ids)
        try:
            while running:
                # An endless wait in the main thread would also miss signals that the kernel delivers to another
                # thread, as it does when a suspended process is continued in order to end it.
                with contextlib.suppress(queue.Empty):
                    update = updates.get(timeout=1)
                    running -= has_ended(update)
                    yield update
        finally:
            self.cancel(run_ids)

    def cancel(self, run_ids: Sequence[str]) -> None:
        """Stop running runs and end waiting ones at once; unknown and ended ones are ignored."""
        with self._lock:
            wanted = [self._executions[run_id] for run_id in run_ids if run_id in self._executions]
            waiting = [(run, self._waiting.pop(run.plan.run_id)) for run in wanted if run.plan.run_id in self._waiting]
            for execution, _ in waiting:
                del self._executions[execution.plan.run_id]
        reason = "the agent was stopped" if self._is_stopping else ""
        for execution in wanted:
            execution.cancel(reason)
        for execution, listener in waiting:
            self._record(execution, RunUpdate(status=RunStatus.CANCELLED, reason=reason), listener)
            if not execution.plan.job.elsewhere:
                self._tails.close(execution.plan.run_id)

    def run(self, stop: threading.Event) -> None:
        """Execute what is queued until `close`."""
        while (item := self._queue.get()) is not None:
            execution, listener = item
            if stop.is_set():
                self.cancel([execution.plan.run_id])
            self._execute(execution, listener)

    def begin_stop(self) -> None:
        """Give the runs that are cancelled from now on the agent's stop as their reason."""
        self._is_stopping = True

    def close(self) -> None:
        """Cancel all runs, and let `run` return."""
        with self._lock:
            self._closed = True
            run_ids = list(self._executions)
        self.cancel(run_ids)
        self._queue.put(None)

    def recover(self, run_id: str, directory: Path, offsets: dict[str, int]) -> None:
        """End a run that an earlier agent process left open: read the rest of its events, and record it as lost."""
        self._tails.open(run_id, directory, offsets)
        self._read_to_end(run_id)
        if not directory.exists():
            reason = "the agent was killed, and its run directory is gone"
        else:
            has_begun = (directory / STREAMS[0]).exists()
            reason = f"the agent was killed {'while it ran' if has_begun else 'before it began'}"
        lost = RunUpdate(status=RunStatus.LOST, reason=reason)
        self._recorder.record_state(run_id, lost, read_unread_end(directory))
        self._tails.close(run_id)

    def _execute(self, execution: Execution, listener: Listener) -> None:
        run_id = execution.plan.run_id
        with self._acquire_node(execution, listener):
            with self._lock:
                if self._waiting.pop(run_id, None) is None:
                    return  # it was cancelled while it waited
            if execution.plan.job.elsewhere:
                plan = execution.plan
                began = self._clock.now().unix_nano
                self._record(execution, RunUpdate(status=RunStatus.RUNNING), listener)
                found = _run(execution)
                platform = plan.job.elsewhere.home.platform if plan.job.elsewhere else ""
                reports = [read_report(execution.directory, platform, index) for index in range(plan.nodes)]
                ends = [report.end(found) for report in reports]
                end = next((each for each in ends if each.status != RunStatus.SUCCEEDED), ends[0])
                if records := [report.own for report in reports if report.own]:
                    write_shown(execution.directory, records, self._clock.now().unix_nano)
                    for report, own_end in zip(reports, ends, strict=True):
                        self._complete(plan, report, own_end)
                else:
                    self._recorder.record_request(plan)
                    self._recorder.record_state(plan.run_id, RunUpdate(status=RunStatus.QUEUED), began)
                    self._recorder.record_leftovers(execution, Digest())
                    self._recorder.record_state(plan.run_id, end, execution.times.ended_unix_nano)
                took = [report.own.seconds for report in reports if report.own and report.own.seconds is not None]
                self._notify(execution, end, listener, max(took, default=None))
            else:
                self._execute_here(execution, listener)
        self._flush()
        self.tidy()
        with self._lock:
            del self._executions[run_id]

    def _acquire_node(self, execution: Execution, listener: Listener) -> contextlib.AbstractContextManager[object]:
        """Wait until no other agent of the node has a run under way, or the run is cancelled; return what to release.

        A run that is made elsewhere disturbs no other, and locks nothing: its own agent does. One that was started
        inside another agent's run locks nothing either, because that run may wait for it.
        """
        plan = execution.plan
        needs_no_lock = plan.job.elsewhere or "GPUAGENT_RUN_ID" in plan.job.variables
        is_reported = False
        while self._node_lock and not needs_no_lock and plan.run_id in self._waiting:
            try:
                return lock(self._node_lock, held="another agent of this node has a run under way")
            except LockedError as error:
                if not is_reported:
                    self._notify(execution, RunUpdate(status=RunStatus.QUEUED, reason=str(error)), listener)
                is_reported = True
                time.sleep(_NODE_POLL_SECONDS)
            except GpuAgentError as error:
                _LOG.warning("cannot wait for runs of other agents on this node: %s", error)
                break
        return contextlib.nullcontext()

    def _execute_here(self, execution: Execution, listener: Listener) -> None:
        run_id = execution.plan.run_id
        self._tails.open(run_id, execution.directory)
        running = RunUpdate(status=RunStatus.RUNNING)
        self._notify(execution, running, listener)
        end = _run(execution, partial(self._recorder.record_state, run_id, running))
        self._read_to_end(run_id)
        digest, times = self._tails.digest(run_id), execution.times
        times.end_at(digest.counted_unix_nano)
        self._recorder.record_leftovers(execution, digest)
        if times.ended_unix_nano:
            # The program's own begin, which was not known when it was launched, replaces that.
            self._recorder.record_state(run_id, running, times.started_unix_nano)
        missing = [name for name in execution.plan.required_results if name not in digest.results]
        if missing and end.status == RunStatus.SUCCEEDED:
            end.status, end.reason = RunStatus.FAILED, f"it reported no {', '.join(missing)}"
        self._record(execution, end, listener, times.ended_unix_nano)
        self._tails.close(run_id)

    def _complete(self, plan: PlannedRun, report: Report, end: RunUpdate) -> None:
        """Deliver, as the run's own node, its image, when it was asked for, and an end that the node could not know."""
        image = plan.job.image
        if report.own is None or image is None:
            return
        buffer = RecordBuffer()
        recorder = RunRecorder(images=None, buffer=buffer, clock=self._clock)
        recorder.record_image(plan.run_id, plan.environment.name, replace(image, digest=report.digest), {})
        if report.created_unix_nano:
            recorder.record_start(plan.run_id, "launch", report.created_unix_nano)
        if (report.own.status, report.own.reason or "") != (end.status, end.reason):
            recorder.record_state(plan.run_id, end, report.ended_unix_nano)
        self._deliver_for(report.own.node_uuid, report.own.hostname, buffer)

    def tidy(self) -> None:
        """Delete the oldest run directories beyond the limits; their events are in the store."""
        with self._lock:
            active = set(self._executions)
        finished = [path for path in self._directory.glob("*") if path.name not in active]
        kept_bytes = 0
        for position, directory in enumerate(sorted(finished, key=_modification_time, reverse=True)):
            for path in directory.rglob("*"):
                with contextlib.suppress(OSError):
                    kept_bytes += path.lstat().st_size
            if position >= KEPT_RUNS or (position and kept_bytes > KEPT_BYTES):
                shutil.rmtree(directory, ignore_errors=True)

    def read_output(self, run_id: str, stream: str, offset_bytes: int | None) -> Piece:
        """Return a piece of a run's `stream`, from `offset_bytes` or shortly before its end.

        Raises GpuAgentError: the stream is unknown, or the run directory is gone.
        """
        if stream not in STREAMS:
            raise GpuAgentError(f"unknown stream {stream!r}; a run has {' and '.join(STREAMS)}")
        with self._lock:
            has_ended = run_id not in self._executions
        # Compared with existing names only: an identity from elsewhere must not become a path.
        if run_id not in (path.name for path in self._directory.glob("*")):
            raise GpuAgentError(f"this node keeps no output of run {run_id!r}, or not any more")
        return read_piece(self._directory / run_id / stream, offset_bytes, has_ended=has_ended)

    def _read_to_end(self, run_id: str) -> None:
        before: Mapping[str, int] | None = None
        while (offsets := self._tails.offsets(run_id)) != before:
            before = offsets
            self._flush()

    def _record(
        self, execution: Execution, update: RunUpdate, listener: Listener, unix_nano: int | None = None
    ) -> None:
        if not execution.plan.job.elsewhere:
            self._recorder.record_state(execution.plan.run_id, update, unix_nano)
        self._notify(execution, update, listener, execution.times.seconds)

    def _notify(
        self, execution: Execution, update: RunUpdate, listener: Listener, seconds: float | None = None
    ) -> None:
        number, names = execution.left
        notice = ""
        if number:
            processes, were = ("1 process", "was") if number == 1 else (f"{number:,} processes", "were")
            what = f"{processes} ({', '.join(names)}) that it left in the background {were}"
            notice = f"{what} ended with it; let it wait for its processes, as a shell does with `wait`"
        shown = RunUpdate(run_directory=str(execution.directory), seconds=seconds, notice=notice)
        shown.run_id, shown.repeat = execution.plan.run_id, execution.plan.asked.first_repeat
        shown.MergeFrom(update)
        listener(shown)


def _make_directory(directory: Path) -> None:
    try:
        directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # output may hold secrets
        directory.mkdir()
    except FileExistsError as error:
        raise GpuAgentError(
            f"this node already has a part in run {directory.name}; start one task a node, with --ranks for its GPUs, "
            "and give each run its own --job"
        ) from error
    except OSError as error:
        raise GpuAgentError(f"cannot make the run directory {directory}: {error.strerror}") from error


def _run(execution: Execution, on_launch: Callable[[int], None] = lambda _unix_nano: None) -> RunUpdate:
    try:
        return execution.run(on_launch)
    except GpuAgentError as error:
        return RunUpdate(status=RunStatus.FAILED, reason=str(error))
    except Exception as error:  # noqa: BLE001
        # No failure of one run may stop the agent.
        _LOG.exception("run %s", execution.plan.run_id)
        return RunUpdate(status=RunStatus.FAILED, reason=f"{type(error).__name__}: {error}")


def _modification_time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
