"""A supervisor that leaves no process behind: `supervisor.py LIFELINE_FD GRACE_SECONDS AFTERWARDS WHO -- PROGRAM …`.

The agent holds the other end of the lifeline, a pipe. It closes when the agent wants the run stopped, or was killed
itself. Then the program and its descendants get SIGTERM, and after the grace SIGKILL. Orphans of the program become
children of this process (a Linux "child subreaper"), so that none escapes.

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

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_SECONDS = 0.05
# A process that survives SIGKILL this long hangs in the kernel.
_KILL_SECONDS = 30.0

# Limit of one command of AFTERWARDS: the end of the program must still be reported.
_AFTERWARDS_SECONDS = 60.0

_RETRY_SECONDS = 0.2

# 128 + SIGTERM: the exit code when the agent closed the lifeline.
STOPPED_BY_AGENT = 143

# The exit code when the program could not be started; stderr says why.
CANNOT_START = 127


def main(arguments: list[str]) -> int:
    """Run the program; return its exit code, or end by the same signal."""
    lifeline, grace_seconds, afterwards, program = int(arguments[0]), float(arguments[1]), arguments[2], arguments[5:]
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wakeup = _wake_on_child_exit()
    try:
        child = subprocess.Popen(program, preexec_fn=_die_with_parent)  # noqa: PLW1509 - there are no threads here
    except OSError as error:
        print(f"cannot start {program[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201
        return CANNOT_START
    agent_closed = _wait(child, lifeline, wakeup)
    passes_on = arguments[3] == "program" and child.poll() is None
    _ask_descendants(grace_seconds, child.pid if passes_on else None)
    if afterwards != "[]":
        _run_afterwards(afterwards, grace_seconds if agent_closed else 0.0)
    deadline = time.monotonic() + _KILL_SECONDS
    while _signal(signal.SIGKILL, _descendants()) and time.monotonic() < deadline:
        _reap()
        time.sleep(_POLL_SECONDS)
    if agent_closed:
        return STOPPED_BY_AGENT
    if child.returncode < 0:
        # End by the same signal, so that the agent sees it.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-child.returncode, signal.SIG_DFL)
        os.kill(os.getpid(), -child.returncode)
    return child.returncode


def _die_with_parent() -> None:
    """Have the kernel kill the program if this process is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _wake_on_child_exit() -> int:
    """Return a file descriptor that becomes readable once a child has ended."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    # Only the lifeline stops this process: a Ctrl-C in the terminal is for the agent.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: None)
    return readable


def _wait(child: "subprocess.Popen[bytes]", lifeline: int, wakeup: int) -> bool:
    """Wait until the program ends (False) or the lifeline closes (True)."""
    while child.poll() is None:
        readable, _, _ = select.select([lifeline, wakeup], [], [])
        if lifeline in readable:
            return True
        os.read(wakeup, 4096)
        # Collect ended orphans, but not the program, whose exit code is asked for later.
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid != child.pid:
            os.waitpid(ended.si_pid, 0)
    return False


def _ask_descendants(grace_seconds: float, only: int | None) -> None:
    """Send SIGTERM once to all descendants, or to `only` one, and wait until all have ended."""
    deadline = time.monotonic() + grace_seconds
    if _signal(signal.SIGTERM, _descendants() if only is None else [only]):
        while _descendants() and time.monotonic() < deadline:
            _reap()
            time.sleep(_POLL_SECONDS)


def _signal(number: signal.Signals, pids: list[int]) -> bool:
    """Send a signal to processes; return whether there were any."""
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
    with open(path, "ab") as output:  # noqa: PTH123
        for command in json.loads(commands):
            while _fails(command, output.fileno()) and time.monotonic() < deadline:
                time.sleep(_RETRY_SECONDS)


def _fails(command: list[str], output: int) -> bool:
    """Run a command; return whether it ended with an error. One that is missing or hangs would not improve: False."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, stdout=output, stderr=output, timeout=_AFTERWARDS_SECONDS, check=False)
        return done.returncode != 0
    return False


def _reap() -> None:
    """Collect the children that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _descendants() -> list[int]:
    """Return the living processes below this one. Not every kernel lists the children of a process."""
    # Not psutil: `-S` hides site-packages from this process, and importing it would take longer than the whole start.
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        with contextlib.suppress(OSError, IndexError), open(f"/proc/{name}/stat") as file:  # noqa: PTH123
            state, parent = file.read().rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(name)] = int(parent)
    found = [os.getpid()]
    for ancestor in found:
        found += [pid for pid, parent in parents.items() if parent == ancestor]
    return found[1:]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
