"""Starts programs under the supervisor, so that nothing of them outlives the run or the agent."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuagent.runs import supervisor

# How long a program has to end after SIGTERM before it is killed.
GRACE_SECONDS = 10.0


class SupervisedProcess:
    """A running program; its output goes to `stdout` and `stderr` in its run directory.

    `passes_signals` says that the program passes SIGTERM on, so that what it started is sent none. `afterwards` are
    commands that are run when the program has ended in whatever way, or has not when asked to, even if the agent was
    killed; their output goes to `afterwards` in the run directory.
    """

    def __init__(
        self,
        program: Sequence[str],
        *,
        run_directory: Path,
        environment: Mapping[str, str],
        working_directory: Path | None,
        grace_seconds: float = GRACE_SECONDS,
        afterwards: Sequence[Sequence[str]] = (),
        passes_signals: bool = False,
    ) -> None:
        ended, self._lifeline = os.pipe()
        options = [str(ended), str(grace_seconds), json.dumps(afterwards), "program" if passes_signals else "all"]
        command = [sys.executable, "-I", "-S", supervisor.__file__, *options, "--", *program]
        try:
            with (run_directory / "stdout").open("ab") as stdout, (run_directory / "stderr").open("ab") as stderr:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    env={**os.environ, **environment, "GPUAGENT_RUN_DIR": str(run_directory)},
                    cwd=working_directory,
                    pass_fds=(ended,),
                    start_new_session=True,
                )
        except BaseException:
            os.close(self._lifeline)
            raise
        finally:
            os.close(ended)
        # The supervisor; the program and what it starts are its descendants.
        self.pid = self._process.pid
        self._stopping = threading.Lock()

    def stop(self) -> None:
        """Ask the program to end, and kill it after the grace. Returns at once."""
        if self._stopping.acquire(blocking=False):
            os.close(self._lifeline)

    def wait(self) -> int:
        """Wait until everything has ended; return the program's exit code, negative for a signal."""
        code = self._process.wait()
        self.stop()
        return code
