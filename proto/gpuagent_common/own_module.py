"""Starts of gpuagent's own processes, by a Python that finds no module in the folder where it starts."""

import ctypes
import signal
from collections.abc import Sequence

# The variable by which Python 3.11 and later leave that folder out, set for the processes that a module starts. Its
# value tells a program of the user's, which may want the folder, from a setting of the user's own.
SAFE_PATH = ("PYTHONSAFEPATH", "gpuagent")

_PR_SET_PDEATHSIG = 1

# `-m` and `-c` look there first, and anyone may have put modules into a folder such as /tmp. Python 3.10 has no option
# against it but `-I`, which hides the user's own packages. The function is the one behind `-m`.
_START = (
    "import sys; sys.path[:] = filter(None, sys.path); import os, runpy; "
    f"os.environ.setdefault{SAFE_PATH}; runpy._run_module_as_main(sys.argv.pop(1))"
)


def module_command(python: str, module: str) -> list[str]:
    """Return the command that runs `module` as `python -m` does, but never from the folder where it starts."""
    return [python, "-c", _START, module]


def shown_command(command: Sequence[str]) -> list[str]:
    """Return a command as people know and type it: that of a module of ours with -m."""
    words = list(command)
    return [words[0], "-m", *words[3:]] if words[1:3] == ["-c", _START] else words


def end_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when its parent is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
