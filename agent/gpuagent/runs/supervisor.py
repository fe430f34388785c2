"""A supervisor that leaves no process behind: `supervisor.py SETTINGS -- PROGRAM …`.

SETTINGS are LIFELINE_FD NEWS_FD GRACE_SECONDS PATIENCE_SECONDS AFTERWARDS WHO.

The agent holds the other end of the lifeline, a pipe. It closes when the agent wants the run stopped, or was killed
itself. Then the program and its descendants get SIGTERM, and after the grace SIGKILL. Orphans of the program become
children of this process (a Linux "child subreaper"), so that none escapes.

NEWS_FD is another pipe, in which the agent reads `started NANOSECONDS` and `ended NANOSECONDS` of the program, in Unix
time, and `left NUMBER NAME …` if processes that it started are still there PATIENCE_SECONDS after its end; 0: these are
of no interest. `refused ERRNO OPTION` means that the kernel does not keep processes together in one of two ways.

WHO gets SIGTERM is `all`, or `program` alone if the program passes it on: a program that receives SIGTERM twice may
treat the second as a request to exit at once. AFTERWARDS is a JSON array of commands that end processes of others, such
as of a container daemon. They run before SIGKILL: Podman cannot remove a container whose monitor was killed.

Only the standard library is used, and `python -I -S` starts it in a few hundredths of a second.
"""

import contextlib
import ctypes
import os
import resource
import select
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_POLL_SECONDS = 0.05
_ENDED = os.WEXITED | os.WNOHANG
# A process that survives SIGKILL this long hangs in the kernel.
_KILL_SECONDS = 30.0

# Limit of one command of AFTERWARDS: the end of the program must still be reported.
_AFTERWARDS_SECONDS = 60.0

_RETRY_SECONDS = 0.2

# Different names in the news of processes that were left.
_MOST_NAMES = 5

# 128 + SIGTERM: the exit code when the agent closed the lifeline.
STOPPED_BY_AGENT = 143

# The file in the run directory with the news that no agent read.
UNREAD_NEWS = "unread-news"

# The exit code when the program could not be started; stderr says why.
CANNOT_START = 127


def main(arguments: list[str]) -> int:
    """Run the program; return its exit code, or end by the same signal."""
    lifeline, news, (grace_seconds, patience_seconds) = int(arguments[0]), int(arguments[1]), map(float, arguments[2:4])
    afterwards, program = arguments[4], arguments[7:]
    _ask_kernel(news, PR_SET_CHILD_SUBREAPER, 1)
    wakeup = _wake_on_child_exit()
    began, begins = os.pipe()

    def prepare() -> None:
        # The kernel kills the program if this process is killed.
        _ask_kernel(news, PR_SET_PDEATHSIG, signal.SIGKILL)
        # Right before it becomes the program: a short one may have ended when Popen returns.
        os.write(begins, str(time.time_ns()).encode())

    try:
        child = subprocess.Popen(program, preexec_fn=prepare)  # noqa: PLW1509 - there are no threads here
    except OSError as error:
        print(f"cannot start {program[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201
        return CANNOT_START
    _report(news, f"started {os.read(began, 32).decode()}")
    family = _Family(child, news, wakeup)
    agent_closed = family.wait(lifeline)
    if not agent_closed and patience_seconds and (left := family.wait_for_rest(patience_seconds)):
        # A process may have given itself a name without a character.
        names = sorted({"_".join(name.split()) or "unnamed" for name in left.values()})
        _report(news, " ".join(["left", str(len(left)), *names[:_MOST_NAMES]]))
    passes_on = arguments[5] == "program" and child.poll() is None
    if _signal(signal.SIGTERM, [child.pid] if passes_on else list(_descendants())):
        family.wait_for_rest(grace_seconds)
    if afterwards != "[]":
        _run_afterwards(afterwards, grace_seconds if agent_closed else 0.0)
    deadline = time.monotonic() + _KILL_SECONDS
    while _signal(signal.SIGKILL, list(_descendants())) and time.monotonic() < deadline:
        family.wait_for_rest(_POLL_SECONDS)
    family.has_ended()
    if agent_closed:
        return STOPPED_BY_AGENT
    if child.returncode < 0:
        # End by the same signal, so that the agent sees it.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-child.returncode, signal.SIG_DFL)
        os.kill(os.getpid(), -child.returncode)
    return child.returncode


def _report(news: int, line: str) -> None:
    """Report to the agent; to the next one by a file in the run directory if it was killed."""
    try:
        os.write(news, f"{line}\n".encode())
    except OSError:
        path = os.path.join(os.environ["GPUAGENT_RUN_DIR"], UNREAD_NEWS)  # noqa: PTH118
        with contextlib.suppress(OSError), os.fdopen(_open_to_append(path), "a") as file:
            file.write(f"{line}\n")


def _open_to_append(path: str) -> int:
    """Open a file of the run directory; fail, rather than wait, for a pipe or a link that the program put there."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW, 0o644)


def _ask_kernel(news: int, option: int, value: int) -> None:
    """Set an option of this process; report it if the kernel refuses, as one that is emulated does."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, value, 0, 0, 0):
        _report(news, f"refused {ctypes.get_errno()} {option}")


def _wake_on_child_exit() -> int:
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    # Only the lifeline stops this process: a Ctrl-C in the terminal is for the agent.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: None)
    return readable


class _Family:
    """The program with the processes that it started; the program's own end is reported when it is seen."""

    def __init__(self, child: "subprocess.Popen[bytes]", news: int, wakeup: int) -> None:
        self._child, self._news, self._wakeup = child, news, wakeup
        self._is_reported = False

    def wait(self, lifeline: int) -> bool:
        """Wait until the program ends (False) or the lifeline closes (True)."""
        while not self.has_ended():
            if lifeline in self._wait_for_child([lifeline], None):
                return True
            self._collect_orphans()
        return False

    def wait_for_rest(self, seconds: float) -> dict[int, str]:
        """Wait until all have ended, for at most `seconds`; return the number and the name of each that is left."""
        deadline = time.monotonic() + seconds
        while (left := _descendants()) and time.monotonic() < deadline:
            self._wait_for_child([], _POLL_SECONDS)
            self.has_ended()
            self._collect_orphans()
        self.has_ended()
        return left

    def _collect_orphans(self) -> None:
        """Collect the ended orphans, but not the program, whose exit code is asked for later."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitid(os.P_ALL, 0, _ENDED | os.WNOWAIT)) and ended.si_pid != self._child.pid:
                os.waitpid(ended.si_pid, 0)

    def has_ended(self) -> bool:
        """Return whether the program itself has ended; report it the first time."""
        if self._child.poll() is None:
            return False
        if not self._is_reported:
            self._is_reported = True
            _report(self._news, f"ended {time.time_ns()}")
        return True

    def _wait_for_child(self, others: list[int], seconds: "float | None") -> list[int]:
        """Wait until a child ends, one of `others` is readable or `seconds` are over; return those of `others`."""
        readable, _, _ = select.select([*others, self._wakeup], [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakeup, 4096)
        return readable


def _signal(number: signal.Signals, pids: list[int]) -> bool:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    return bool(pids)


def _run_afterwards(commands: str, patience_seconds: float) -> None:
    """Run each command of a JSON array; repeat a failing one for `patience_seconds`.

    A container that is stopped during its start may appear only later: Docker makes it after its client has gone.
    """
    import json  # only here: it takes a tenth of this process's start

    deadline = time.monotonic() + patience_seconds
    path = os.path.join(os.environ["GPUAGENT_RUN_DIR"], "afterwards")  # noqa: PTH118
    try:
        output = _open_to_append(path)
    except OSError:
        output = subprocess.DEVNULL
    for command in json.loads(commands):
        while _fails(command, output) and time.monotonic() < deadline:
            time.sleep(_RETRY_SECONDS)


def _fails(command: list[str], output: int) -> bool:
    """Run a command; return whether it ended with an error. One that is missing or hangs would not improve: False."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, stdout=output, stderr=output, timeout=_AFTERWARDS_SECONDS, check=False)
        return done.returncode != 0
    return False


def _descendants() -> dict[int, str]:
    """Return the number and the name of each living process below this one.

    Not every kernel lists the children of a process.
    """
    # Not psutil: `-S` hides site-packages from this process, and importing it would take longer than the whole start.
    parents, names = {}, {}
    for number in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{number}/stat", errors="replace") as file:  # noqa: PTH123
            before, _, after = file.read().rpartition(")")
            state, parent = after.split()[:2]
            if state != "Z":
                parents[int(number)] = int(parent)
                names[int(number)] = before.partition("(")[2]
    found = [os.getpid()]
    for ancestor in found:
        found += [pid for pid, parent in parents.items() if parent == ancestor]
    return {pid: names[pid] for pid in found[1:]}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
