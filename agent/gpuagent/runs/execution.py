"""The execution of one planned run: its interference first, then the program, to its end."""

import contextlib
import os
import queue
import re
import select
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from gpuagent.environments.environment import Ending, Job, Launch
from gpuagent.environments.support.common import ClientError, ask_client, read_run_file
from gpuagent.redaction import redact_text
from gpuagent.runs.events import EventTailer
from gpuagent.runs.planning import PlannedRun
from gpuagent.runs.printed import PrintedSteps
from gpuagent.runs.processes import SupervisedProcess
from gpuagent.sources.source import Value
from gpuagent.sources.support.files import parse_flat
from gpuagent_common.limits import CpuChange
from gpuagent_common.statuses import RunStatus
from gpuagent_proto.v1.run_pb2 import RunUpdate


def process_start_unix_nano(pid: int) -> int | None:
    """Return when a process began, to a hundredth of a second; None: it is gone."""
    try:
        process = psutil.Process(pid)
        since_boot_seconds = process.create_time() - psutil.boot_time()
    except (psutil.Error, OSError, RuntimeError):
        return None
    # psutil's boot time has whole seconds; with it a process could seem to begin before its launch.
    booted_unix_nano = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return booted_unix_nano + round(since_boot_seconds * 100) * 10_000_000


@dataclass(slots=True)
class RunTimes:
    """The instants of one run; None: not known.

    Attributes:
        launch_unix_nano: the environment was asked to start the program; whatever runs beside it carried its load.
        process_unix_nano: the program's process began, where others start it, or nothing contains it. A process that
            sets up a container and then becomes the program hides that moment.
        command_unix_nano: the environment's command for that began, which may itself become the program.
        ended_unix_nano: the program's process ended; what its container and the agent still do comes later.
    """

    launch_unix_nano: int | None = None
    command_unix_nano: int | None = None
    process_unix_nano: int | None = None
    ended_unix_nano: int | None = None

    @property
    def started_unix_nano(self) -> int | None:
        """The begin of the run: of its process, or of the command for it where that is hidden."""
        return self.process_unix_nano or self.command_unix_nano or self.launch_unix_nano

    @property
    def seconds(self) -> float | None:
        """The duration of the run; None: it never began, or the node's clock was set back while it ran."""
        if self.started_unix_nano is None or self.ended_unix_nano is None:
            return None
        seconds = (self.ended_unix_nano - self.started_unix_nano) / 1e9
        return seconds if seconds >= 0 else None

    def end_at(self, unix_nano: int | None) -> None:
        """End the run at a time that its program reports, if that is within the run."""
        if unix_nano and (self.started_unix_nano or 0) <= unix_nano <= (self.ended_unix_nano or 0):
            self.ended_unix_nano = unix_nano

    def instants(self) -> Iterator[tuple[str, int]]:
        """Yield the name and the time of each that is known."""
        for name, unix_nano in (("launch", self.launch_unix_nano), ("process", self.process_unix_nano)):
            if unix_nano is not None:
                yield name, unix_nano


class Changes:
    """The changes of one run. Their times count from its first process on: containers take a while to start.

    Args:
        changes: in the order of their times.
        command: returns the command that gives the run so many CPUs.
    """

    def __init__(
        self, changes: Sequence[CpuChange], command: Callable[[float], Sequence[str]], ended: threading.Event
    ) -> None:
        self._left = list(changes)
        self._command = command
        self._ended = ended
        # The error of a change that failed; None: none failed.
        self.refusal: str | None = None
        # Each change with its time in Unix nanoseconds.
        self.made: list[tuple[CpuChange, int]] = []

    @property
    def missed(self) -> str | None:
        """The first change that the run did not live to see, as a reason; None: all were made."""
        return f"it ended before its change {self._left[0]}" if self._left else None

    def make(self, started_unix_nano: int) -> bool:
        """Make each change at its time until the run ends; return False if one failed.

        `started_unix_nano` is the start of the run's first process.
        """
        while self._left:
            change = self._left[0]
            if self._ended.wait(change.after_seconds - (time.time_ns() - started_unix_nano) / 1e9):
                return True
            try:
                ask_client(self._command(change.cpus))
            except ClientError as error:
                self.refusal = f"its change {change} was not made: {error}"
                return False
            self.made.append((self._left.pop(0), time.time_ns()))
        return True


def read_oom_kills(proc: Path = Path("/proc")) -> int | None:
    """Return how many processes of this node the kernel has ended for lack of memory, in any control group.

    The node's count is read because a container's own goes with it. None: this kernel does not count (before 4.13).
    """
    try:
        return parse_flat((proc / "vmstat").read_text()).get("oom_kill")
    except OSError:
        return None


_INTERFERENCE_READY_SECONDS = 60.0
_READY_POLL_SECONDS = 0.05
_ROOT_POLL_SECONDS = 0.2
# Some roots are never found, such as in a PID namespace of the agent's own, and each attempt costs.
_ROOT_POLL_MOST_SECONDS = 5.0
# Some programs cannot be seen, and each attempt reads all processes of the node. One found late still has its begin.
_PROGRAM_POLL_MOST_SECONDS = 60.0

# Size of the end of stderr that is searched for a reason.
_ENDING_BYTES = 4096
# Most of a program's last line of errors that is quoted.
_WORDS_CHARACTERS = 200


class Execution:
    """A run that is being executed. `cancel` may be called from any thread, at any time."""

    def __init__(self, plan: PlannedRun, directory: Path) -> None:
        self.plan = plan
        self.directory = directory
        self._happened: queue.SimpleQueue[RunStatus | None] = queue.SimpleQueue()
        self._cancelled = threading.Event()
        # Why it was cancelled; empty: somebody asked for that.
        self._why_cancelled = ""
        self._ended = threading.Event()
        # The process from which the program descends; None: not started yet, or not found.
        self.root_pid: int | None = None
        # Whether that process is of the run itself.
        self.root_is_program = False
        # Results of each interference when it ended: the load that it reached.
        self.interference: dict[str, Mapping[str, Value]] = {}
        self.times = RunTimes()
        # Changes of its limits while it runs; None: there are none.
        self.changes: Changes | None = None
        # When the program itself began, within the processes that unpack an image for it; None: not known.
        self.program_unix_nano: int | None = None
        # Processes that the program left running, and their names, each once.
        self.left: tuple[int, Sequence[str]] = (0, ())
        self._oom_kills_before: int | None = None

    def cancel(self, reason: str = "") -> None:
        """Stop the run; it ends as cancelled, for a reason unless somebody asked for that."""
        if not self._cancelled.is_set():
            self._why_cancelled = reason
        self._cancelled.set()
        self._happened.put(RunStatus.CANCELLED)

    def run(self, on_launch: Callable[[int], None] = lambda _unix_nano: None) -> RunUpdate:
        """Execute the run to its end; `on_launch` gets the time when its program is started, after those beside it."""
        self._oom_kills_before = read_oom_kills()
        with ExitStack() as beside:
            for name in () if self.plan.job.elsewhere else self.plan.interference:
                problem = self._start_beside(name, beside)
                if self._cancelled.is_set():
                    return RunUpdate(status=RunStatus.CANCELLED, reason=self._why_cancelled)
                if problem:
                    return RunUpdate(status=RunStatus.FAILED, reason=problem)
            plan = self.plan
            # Elsewhere it counts from the program's start, which is not known here.
            timeout_seconds = None if plan.job.elsewhere else plan.asked.timeout_seconds or None
            self.times.launch_unix_nano = time.time_ns()
            on_launch(self.times.launch_unix_nano)
            job = plan.job_in(self.directory)
            plan.environment.prepare(self.directory)
            launch = plan.environment.launch(job)
            self.root_is_program = launch.root_is_program
            try:
                process = self._start(launch, job, Path(plan.asked.input) if plan.asked.input else None)
            except OSError as error:
                return RunUpdate(status=RunStatus.FAILED, reason=f"cannot start {launch.command[0]}: {error}")
            threads = [threading.Thread(target=wait, daemon=True) for wait in self._waits(process, launch)]
            for thread in threads:
                thread.start()
            try:
                happened = self._happened.get(timeout=timeout_seconds)
            except queue.Empty:
                happened = RunStatus.TIMED_OUT
            finally:
                process.stop()
                for thread in threads:
                    thread.join()
            code = process.wait()
            self.left = process.left
            self._note_times(process, launch)
            return self._end(happened, code)

    def _end(self, happened: RunStatus | None, client_code: int) -> RunUpdate:
        """Return how the run ended, of which `happened` what is no end of its own."""
        plan, changes = self.plan, self.changes
        code = plan.environment.exit_code(client_code)
        end = RunUpdate(status=happened or (RunStatus.FAILED if code else RunStatus.SUCCEEDED), exit_code=code)
        if end.status == RunStatus.CANCELLED:
            end.reason = self._why_cancelled
        elif end.status == RunStatus.TIMED_OUT:
            end.reason = f"stopped after {plan.asked.timeout_seconds:g} s, its timeout"
        elif end.status == RunStatus.FAILED:
            end.reason = self._explain(client_code, self.directory) or (
                f"ended by signal {-code}" if code < 0 else f"exit code {code}{self._read_last_words()}"
            )
        # Without all of its changes it is not the run that was asked for.
        missed = changes and (changes.refusal or (changes.missed if end.status == RunStatus.SUCCEEDED else None))
        if missed and end.status in (RunStatus.SUCCEEDED, RunStatus.FAILED):
            end.status, end.reason = RunStatus.FAILED, missed
        return end

    def _waits(self, process: SupervisedProcess, launch: Launch) -> Iterator[Callable[[], None]]:

        def wait_for_end() -> None:
            process.wait_for_program()
            self.root_pid = None
            self._ended.set()
            self._happened.put(None)
            process.wait()

        yield wait_for_end
        if self.plan.patterns:
            items_per_step = self.plan.asked.items_per_step or None
            yield partial(PrintedSteps(self.directory, self.plan.patterns, items_per_step).run, self._ended)
        if launch.change_cpus and self.plan.job.limits.changes:
            self.changes = Changes(self.plan.job.limits.changes, launch.change_cpus, self._ended)
        if launch.find_root:
            yield partial(self._wait_for_root, launch.find_root)
        else:
            self.root_pid = process.pid
        if launch.find_program:
            yield partial(self._follow_program, launch.find_program)

    def _wait_for_root(self, find_root: Callable[[], int | None]) -> None:
        pid = self._poll(find_root)
        if pid is None:
            return
        self.root_pid = pid
        self.times.process_unix_nano = process_start_unix_nano(pid)
        if self.changes and not self.changes.make(self.times.process_unix_nano or time.time_ns()):
            self._happened.put(None)  # the run would go on without the limits that were asked for
        if self.root_is_program:
            self._wait_for_end_of(pid)

    def _follow_program(self, find_program: Callable[[int], int | None]) -> None:
        root = self._poll(lambda: self.root_pid)
        if root and (pid := self._poll(lambda: find_program(root), _PROGRAM_POLL_MOST_SECONDS)):
            self.program_unix_nano = process_start_unix_nano(pid)
            self._wait_for_end_of(pid)

    def _poll(self, find: Callable[[], int | None], most_seconds: float = _ROOT_POLL_MOST_SECONDS) -> int | None:
        """Poll for a process: a container takes a while to start, and few runtimes report when it has."""
        poll_seconds = _ROOT_POLL_SECONDS
        while (pid := find()) is None:
            if self._ended.wait(poll_seconds):
                return None
            poll_seconds = min(1.5 * poll_seconds, most_seconds)
        return None if self._ended.is_set() else pid

    def _wait_for_end_of(self, pid: int) -> None:
        """Note when a process ends that is not this one's child; never on kernels, or for Pythons, before 5.3."""
        # Python lacks the function where it was built with the headers of an older kernel.
        with contextlib.suppress(OSError, AttributeError):
            descriptor = os.pidfd_open(pid)
            try:
                end = select.poll()  # select takes no descriptors from 1024 on
                end.register(descriptor, select.POLLIN)
                while not self._ended.is_set():
                    if end.poll(1000 * _ROOT_POLL_MOST_SECONDS):
                        self.times.ended_unix_nano = time.time_ns()
                        return
            finally:
                os.close(descriptor)

    def _note_times(self, process: SupervisedProcess, launch: Launch) -> None:
        """Note when the program began and ended, as exactly as its environment lets it be known."""
        launched, client_ended = self.times.launch_unix_nano or 0, process.ended_unix_nano or time.time_ns()
        span = self.plan.environment.find_span(self.directory)

        def first_until(latest: int, *instants: int | None) -> int | None:
            # The clock of a daemon on another machine may be another one.
            return next((each for each in instants if each is not None and launched <= each <= latest), None)

        ended = first_until(client_ended, self.times.ended_unix_nano, span.ended_unix_nano) or client_ended
        self.times.ended_unix_nano = ended
        self.times.command_unix_nano = process.started_unix_nano
        # Podman notes a begin some time after its runtime started the program, which may have ended by then.
        if started := first_until(ended - 1, self.program_unix_nano, span.started_unix_nano):
            self.times.process_unix_nano = started
        elif not (launch.find_root or launch.find_program) and (self.plan.job.image is None or launch.is_program):
            self.times.process_unix_nano = process.started_unix_nano

    def _explain(self, code: int, directory: Path) -> str | None:
        stderr, afterwards = (_end_of(directory / name) for name in ("stderr", "afterwards"))
        before, after = self._oom_kills_before, read_oom_kills()
        return self.plan.environment.explain(
            Ending(
                exit_code=code,
                stderr=stderr,
                afterwards=afterwards,
                has_oom_kill=before is not None and after is not None and after > before,
                memory_bytes=self.plan.job.limits.memory_bytes if directory == self.directory else None,
            )
        )

    def _read_last_words(self) -> str:
        """Return the last line of the program's errors, behind a colon; empty: there is none."""
        lines = _end_of(self.directory / "stderr").splitlines()
        last = next((line for line in reversed(lines) if re.search(r"\w", line)), "")
        words = textwrap.shorten(last, _WORDS_CHARACTERS, placeholder="…").removeprefix("error: ")
        return words and f": {redact_text(words)}"

    def _start(self, launch: Launch, job: Job, given: Path | None = None) -> SupervisedProcess:
        return SupervisedProcess(
            launch,
            run_directory=job.run_directory,
            environment={**job.variables, "GPUAGENT_RUN_ID": self.plan.run_id},
            working_directory=self.plan.job.working_directory,
            input_file=given,
        )

    def _start_beside(self, name: str, beside: ExitStack) -> str | None:
        """Start an interference and wait until it has reached its load; return the reason if that fails."""
        directory = self.directory / f"with-{name}"
        directory.mkdir()
        tailer = EventTailer(self.plan.run_id, directory)
        job = self.plan.job_beside(name, directory)
        process = self._start(self.plan.environment.launch_beside(job), job)

        def stop() -> None:
            process.stop()
            process.wait()
            self.interference[name] = tailer.read_all().results

        beside.callback(stop)
        deadline = time.monotonic() + _INTERFERENCE_READY_SECONDS
        while tailer.read_all().phase != "measure":
            if self._cancelled.wait(_READY_POLL_SECONDS):
                return None
            # Whether the process has ended, without collecting it.
            if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                why = self._explain(process.wait(), directory) or f"see {directory}/stderr"
                return f"{name} ended before it reached its load: {why}"
            if time.monotonic() > deadline:
                return f"{name} did not reach its load within {_INTERFERENCE_READY_SECONDS:.0f} s"
        return None


def _end_of(path: Path) -> str:
    return read_run_file(path, -_ENDING_BYTES, _ENDING_BYTES).decode(errors="replace")
