"""Executes one planned run: what runs beside it first, then the run itself, watched to its end."""

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from gpuagent.environments import Ending, Launch
from gpuagent.runs.changes import Changes
from gpuagent.runs.events import Digest, EventTailer
from gpuagent.runs.oom_notice import OomNotice, open_oom_notice
from gpuagent.runs.planning import Interference, PlannedRun
from gpuagent.runs.processes import SupervisedProcess
from gpuagent.runs.start_up import StartUp, process_start_unix_nano
from gpuagent.sources.source import Value
from gpuagent_common.statuses import RunStatus

_INTERFERENCE_READY_SECONDS = 60.0
_READY_POLL_SECONDS = 0.05
_ROOT_POLL_SECONDS = 0.2
# Some never find it, as in a PID namespace of the agent's own, and each look costs.
_ROOT_POLL_MOST_SECONDS = 5.0

# How much of the end of stderr is looked at for a reason.
_ENDING_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended, and why when it did not succeed."""

    status: RunStatus
    exit_code: int | None = None
    reason: str | None = None


class Execution:
    """One run while it is being executed. `cancel` may be called from any thread, at any time."""

    def __init__(self, plan: PlannedRun, directory: Path) -> None:
        self.plan = plan
        self.directory = directory
        self._happened: queue.SimpleQueue[RunStatus | None] = queue.SimpleQueue()
        self._cancelled = threading.Event()
        self._ended = threading.Event()
        # The process whose descendants are the program's; None before it is there.
        self.root_pid: int | None = None
        # What each workload beside it reported when it ended: the load it reached.
        self.interference: dict[str, Mapping[str, Value]] = {}
        self.start_up = StartUp()
        # Of its limits while it runs; None: none can be made.
        self.changes: Changes | None = None
        self._oom_notice: OomNotice | None = None

    def cancel(self) -> None:
        """Stop the run; it ends as cancelled."""
        self._cancelled.set()
        self._happened.put(RunStatus.CANCELLED)

    @property
    def cancelled(self) -> bool:
        """Whether somebody wants the run stopped."""
        return self._cancelled.is_set()

    def run(self) -> Outcome:
        """Execute the run to its end."""
        with ExitStack() as beside:
            for interference in self.plan.interference:
                problem = self._start_beside(interference, beside)
                if self.cancelled:
                    return Outcome(status=RunStatus.CANCELLED)
                if problem:
                    return Outcome(status=RunStatus.FAILED, reason=problem)
            return self._run_program()

    def _run_program(self) -> Outcome:
        plan = self.plan
        self.start_up.launch_unix_nano = time.time_ns()
        launch = plan.environment.launch(plan.job(self.directory))
        try:
            process = self._start(launch, self.directory)
        except OSError as error:
            return Outcome(status=RunStatus.FAILED, reason=f"cannot start {launch.command[0]}: {error}")
        threads = [threading.Thread(target=wait, daemon=True) for wait in self._waits(process, launch)]
        for thread in threads:
            thread.start()
        with ExitStack() as afterwards:
            afterwards.callback(self._close_oom_notice)
            try:
                happened = self._next_happening(plan.timeout_seconds)
            finally:
                process.stop()
                for thread in threads:
                    thread.join()
            outcome = self._outcome(happened, process.wait())
        return _as_changed(outcome, self.changes) if self.changes else outcome

    def _waits(self, process: SupervisedProcess, launch: Launch) -> Iterator[Callable[[], None]]:
        """Yield what has to be waited for while the program runs."""
        yield partial(self._wait_for_end, process)
        if launch.change_cpus and self.plan.limits.changes:
            self.changes = Changes(self.plan.limits.changes, launch.change_cpus, self._ended)
        if launch.find_root:
            yield partial(self._wait_for_root, launch.find_root, hears_of_memory=launch.is_silent_of_memory)
        else:
            self.root_pid = process.pid
            if self.plan.image is None:
                self.start_up.process_unix_nano = time.time_ns()

    def _wait_for_end(self, process: SupervisedProcess) -> None:
        process.wait()
        self._ended.set()
        self._happened.put(None)

    def _wait_for_root(self, find_root: Callable[[], int | None], *, hears_of_memory: bool) -> None:
        """Ask until there is an answer: a container takes a while to start, and few runtimes tell when it has."""
        poll_seconds = _ROOT_POLL_SECONDS
        while (pid := find_root()) is None:
            if self._ended.wait(poll_seconds):
                return
            poll_seconds = min(1.5 * poll_seconds, _ROOT_POLL_MOST_SECONDS)
        if hears_of_memory:
            self._oom_notice = open_oom_notice(pid)
        self.root_pid = pid
        self.start_up.process_unix_nano = process_start_unix_nano(pid)
        if self.changes and not self.changes.make(self.start_up.process_unix_nano or time.time_ns()):
            self._happened.put(None)  # what went on would not be what was asked for

    def _next_happening(self, timeout_seconds: float | None) -> RunStatus | None:
        """Return CANCELLED, TIMED_OUT, or None when the program has ended."""
        try:
            return self._happened.get(timeout=timeout_seconds)
        except queue.Empty:
            return RunStatus.TIMED_OUT

    def _close_oom_notice(self) -> None:
        if self._oom_notice:
            self._oom_notice.close()

    def _outcome(self, happened: RunStatus | None, code: int) -> Outcome:
        exit_code = self.plan.environment.exit_code(code)
        outcome = _outcome(happened, exit_code, self.plan.timeout_seconds)
        if outcome.status is not RunStatus.FAILED:
            return outcome
        return replace(outcome, reason=self._explain(code, self.directory, self._oom_notice) or outcome.reason)

    def _explain(self, code: int, directory: Path, oom_notice: OomNotice | None = None) -> str | None:
        """Return, in words, why what ran in `directory` failed, where its environment knows more than its exit code."""
        stderr, afterwards = (_end_of(directory / name) for name in ("stderr", "afterwards"))
        is_out_of_memory = oom_notice is not None and oom_notice.was_given()
        return self.plan.environment.explain(
            Ending(
                exit_code=code,
                stderr=stderr,
                afterwards=afterwards,
                is_out_of_memory=is_out_of_memory,
                memory_bytes=self.plan.limits.memory_bytes if directory == self.directory else None,
            )
        )

    def _start(self, launch: Launch, directory: Path) -> SupervisedProcess:
        return SupervisedProcess(
            launch.command,
            afterwards=launch.afterwards,
            passes_signals=launch.passes_signals,
            run_directory=directory,
            environment={"GPUAGENT_RUN_ID": self.plan.run_id},
            working_directory=self.plan.working_directory,
        )

    def _start_beside(self, interference: Interference, beside: ExitStack) -> str | None:
        """Start a workload beside the run and wait until it has reached its load; return what went wrong."""
        directory = self.directory / f"with-{interference.name}"
        directory.mkdir()
        tailer = EventTailer(self.plan.run_id, directory)
        launch = self.plan.environment.launch_beside(self.plan.job_beside(interference, directory))
        process = self._start(launch, directory)
        beside.callback(self._stop_beside, interference.name, process, tailer)
        deadline = time.monotonic() + _INTERFERENCE_READY_SECONDS
        while _read(tailer).phase != "measure":
            if self._cancelled.wait(_READY_POLL_SECONDS):
                return None
            if not _is_alive(process.pid):
                why = self._explain(process.wait(), directory) or f"see {directory}/stderr"
                return f"{interference.name} ended before it reached its load: {why}"
            if time.monotonic() > deadline:
                return f"{interference.name} did not reach its load within {_INTERFERENCE_READY_SECONDS:.0f} s"
        return None

    def _stop_beside(self, name: str, process: SupervisedProcess, tailer: EventTailer) -> None:
        process.stop()
        process.wait()
        self.interference[name] = _read(tailer).results


def _outcome(happened: RunStatus | None, exit_code: int, timeout_seconds: float | None) -> Outcome:
    if happened is RunStatus.TIMED_OUT:
        return Outcome(status=happened, exit_code=exit_code, reason=f"stopped after {timeout_seconds:g} s, its timeout")
    if happened is RunStatus.CANCELLED:
        return Outcome(status=happened, exit_code=exit_code)
    if exit_code < 0:
        return Outcome(status=RunStatus.FAILED, exit_code=exit_code, reason=f"ended by signal {-exit_code}")
    if exit_code > 0:
        return Outcome(status=RunStatus.FAILED, exit_code=exit_code, reason=f"ended with exit code {exit_code}")
    return Outcome(status=RunStatus.SUCCEEDED, exit_code=exit_code)


def _as_changed(outcome: Outcome, changes: Changes) -> Outcome:
    """Return what became of a run that should have been changed: without its changes it is not what was asked for."""
    if changes.refusal and outcome.status in (RunStatus.SUCCEEDED, RunStatus.FAILED):
        return replace(outcome, status=RunStatus.FAILED, reason=changes.refusal)
    if changes.missed and outcome.status is RunStatus.SUCCEEDED:
        return replace(outcome, status=RunStatus.FAILED, reason=changes.missed)
    return outcome


def _end_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _ENDING_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _read(tailer: EventTailer) -> Digest:
    for _ in tailer.read_new():
        pass  # only the digest is wanted
    return tailer.digest


def _is_alive(pid: int) -> bool:
    """Return whether our child is still running, without collecting it."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
