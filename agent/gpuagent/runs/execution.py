"""The execution of one planned run: its interference first, then the program, to its end."""

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
from gpuagent.runs.events import EventTailer
from gpuagent.runs.oom_notice import OomNotice, open_oom_notice
from gpuagent.runs.planning import Interference, PlannedRun
from gpuagent.runs.processes import SupervisedProcess
from gpuagent.runs.start_up import StartUp, process_start_unix_nano
from gpuagent.sources.source import Value
from gpuagent_common.statuses import RunStatus

_INTERFERENCE_READY_SECONDS = 60.0
_READY_POLL_SECONDS = 0.05
_ROOT_POLL_SECONDS = 0.2
# Some roots are never found, such as in a PID namespace of the agent's own, and each attempt costs.
_ROOT_POLL_MOST_SECONDS = 5.0

# Size of the end of stderr that is searched for a reason.
_ENDING_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The status of a run, and the reason if it did not succeed."""

    status: RunStatus
    exit_code: int | None = None
    reason: str | None = None


class Execution:
    """A run that is being executed. `cancel` may be called from any thread, at any time."""

    def __init__(self, plan: PlannedRun, directory: Path) -> None:
        self.plan = plan
        self.directory = directory
        self._happened: queue.SimpleQueue[RunStatus | None] = queue.SimpleQueue()
        self._cancelled = threading.Event()
        self._ended = threading.Event()
        # The process from which the program descends; None: not started yet, or not found.
        self.root_pid: int | None = None
        # Results of each interference when it ended: the load that it reached.
        self.interference: dict[str, Mapping[str, Value]] = {}
        self.start_up = StartUp()
        # Changes of its limits while it runs; None: there are none.
        self.changes: Changes | None = None
        self._oom_notice: OomNotice | None = None

    def cancel(self) -> None:
        """Stop the run; it ends as cancelled."""
        self._cancelled.set()
        self._happened.put(RunStatus.CANCELLED)

    @property
    def cancelled(self) -> bool:
        """True if the run was asked to stop."""
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
        try:
            happened = self._happened.get(timeout=plan.timeout_seconds)
        except queue.Empty:
            happened = RunStatus.TIMED_OUT
        finally:
            process.stop()
            for thread in threads:
                thread.join()
        code = process.wait()
        outcome = _outcome(happened, plan.environment.exit_code(code), plan.timeout_seconds)
        if outcome.status is RunStatus.FAILED:
            reason = self._explain(code, self.directory, self._oom_notice)
            outcome = replace(outcome, reason=reason or outcome.reason)
        if self._oom_notice:
            self._oom_notice.close()
        return _as_changed(outcome, self.changes) if self.changes else outcome

    def _waits(self, process: SupervisedProcess, launch: Launch) -> Iterator[Callable[[], None]]:
        """Yield a function for each thread that waits while the program runs."""

        def wait_for_end() -> None:
            process.wait()
            self._ended.set()
            self._happened.put(None)

        yield wait_for_end
        if launch.change_cpus and self.plan.limits.changes:
            self.changes = Changes(self.plan.limits.changes, launch.change_cpus, self._ended)
        if launch.find_root:
            yield partial(self._wait_for_root, launch.find_root, listens_for_oom=launch.is_silent_of_memory)
        else:
            self.root_pid = process.pid
            if self.plan.image is None:
                self.start_up.process_unix_nano = time.time_ns()

    def _wait_for_root(self, find_root: Callable[[], int | None], *, listens_for_oom: bool) -> None:
        """Poll for the root process: a container takes a while to start, and few runtimes report when it has."""
        poll_seconds = _ROOT_POLL_SECONDS
        while (pid := find_root()) is None:
            if self._ended.wait(poll_seconds):
                return
            poll_seconds = min(1.5 * poll_seconds, _ROOT_POLL_MOST_SECONDS)
        if listens_for_oom:
            self._oom_notice = open_oom_notice(pid)
        self.root_pid = pid
        self.start_up.process_unix_nano = process_start_unix_nano(pid)
        if self.changes and not self.changes.make(self.start_up.process_unix_nano or time.time_ns()):
            self._happened.put(None)  # the run would go on without the limits that were asked for

    def _explain(self, code: int, directory: Path, oom_notice: OomNotice | None = None) -> str | None:
        """Return the reason for the failure of the program in `directory`, if its environment knows one."""
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
            environment={**self.plan.variables, "GPUAGENT_RUN_ID": self.plan.run_id},
            working_directory=self.plan.working_directory,
        )

    def _start_beside(self, interference: Interference, beside: ExitStack) -> str | None:
        """Start an interference and wait until it has reached its load; return the reason if that fails."""
        directory = self.directory / f"with-{interference.name}"
        directory.mkdir()
        tailer = EventTailer(self.plan.run_id, directory)
        launch = self.plan.environment.launch_beside(self.plan.job_beside(interference, directory))
        process = self._start(launch, directory)

        def stop() -> None:
            process.stop()
            process.wait()
            self.interference[interference.name] = tailer.read_all().results

        beside.callback(stop)
        deadline = time.monotonic() + _INTERFERENCE_READY_SECONDS
        while tailer.read_all().phase != "measure":
            if self._cancelled.wait(_READY_POLL_SECONDS):
                return None
            # Whether the process has ended, without collecting it.
            if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                why = self._explain(process.wait(), directory) or f"see {directory}/stderr"
                return f"{interference.name} ended before it reached its load: {why}"
            if time.monotonic() > deadline:
                return f"{interference.name} did not reach its load within {_INTERFERENCE_READY_SECONDS:.0f} s"
        return None


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
    """Fail a run that ended without all of its changes: it is not the run that was asked for."""
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
