"""`python -m gpuagent_workloads.rank …`: one of the ranks that `training.launch` starts through torchrun's launcher.

The command line is that of `gpuagent_workloads`. What goes wrong is left in the file that TORCHELASTIC_ERROR_FILE
names, and the launcher says it once for all ranks. SIGTERM ends a rank at once, as it would any program: another rank
has failed, and this one may be waiting for it in a collective.
"""

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gpuagent_workloads.cli import attempt

_PR_SET_PDEATHSIG = 1


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code."""
    _die_with_launcher()
    code, complaint = attempt(arguments)
    if complaint:
        _leave(complaint, Path(os.environ["TORCHELASTIC_ERROR_FILE"]))
    return code


def _die_with_launcher() -> None:
    """Have the kernel end this process should its launcher be killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _leave(complaint: str, file: Path) -> None:
    """Leave what went wrong where the launcher looks for it, with a time that tells which rank failed first."""
    text = json.dumps({"message": complaint, "timestamp": int(time.time()), "unix_nano": time.time_ns()})
    file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    exit_code = main(sys.argv[1:])
    if exit_code:
        # Not sys.exit: on its way out a process group would wait for ranks that cannot answer.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)
