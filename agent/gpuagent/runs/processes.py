"""Programs under the supervisor, of which nothing outlives the run or the agent."""

import json
import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from gpuagent.environments.environment import Launch
from gpuagent.environments.support.common import read_run_file
from gpuagent.runs import supervisor

_LOG = logging.getLogger(__name__)

# Set where this Python was carried into another image: the loader that starts it, with its options.
LOADER_VARIABLE = "GPUAGENT_LOADER"

# Helpers of a program, such as its data loaders, may end this much later than it does.
_PATIENCE_SECONDS = 1.0

# Of the kernel, by its number: the name, and what can happen without it.
_OPTIONS = {
    supervisor.PR_SET_CHILD_SUBREAPER: ("PR_SET_CHILD_SUBREAPER", "daemons that programs start may outlive their runs"),
    supervisor.PR_SET_PDEATHSIG: ("PR_SET_PDEATHSIG", "programs may outlive a supervisor that is killed"),
}

# More than all news of one program that no agent read.
_NEWS_BYTES = 4096
_ENDED = re.compile(rb"^ended ([0-9]{1,19})$", re.MULTILINE)


class SupervisedProcess:
    """A running program; its output goes to `stdout` and `stderr` in its run directory.

    Args:
        launch: the program, and how it ends. Where what it starts descends from it, those that outlive it are counted.
        environment: all environment variables of the program, to which GPUAGENT_RUN_DIR is added.
        input_file: its standard input; None: there is none.
    """

    def __init__(
        self,
        launch: Launch,
        *,
        run_directory: Path,
        environment: Mapping[str, str],
        working_directory: Path | None,
        input_file: Path | None = None,
    ) -> None:
        ended, self._lifeline = os.pipe()
        news, news_writer = os.pipe()
        self._news = os.fdopen(news)
        # Of the program, in Unix time; None: not known, as of a program that did not start.
        self.started_unix_nano: int | None = None
        self.ended_unix_nano: int | None = None
        # Processes that the program left running, and their names, each once.
        self.left: tuple[int, Sequence[str]] = (0, ())
        patience_seconds = 0.0 if launch.find_root else _PATIENCE_SECONDS
        options = [str(ended), str(news_writer), str(launch.grace_seconds), str(patience_seconds)]
        options += [json.dumps(launch.afterwards), "program" if launch.passes_signals else "all"]
        python = [*os.environ.get(LOADER_VARIABLE, "").split(), sys.executable]
        command = [*python, "-I", "-S", supervisor.__file__, *options, "--", *launch.command]
        try:
            with (
                (input_file or Path(os.devnull)).open("rb") as given,
                (run_directory / "stdout").open("ab") as stdout,
                (run_directory / "stderr").open("ab") as stderr,
            ):
                self._process = subprocess.Popen(
                    command,
                    stdin=given,
                    stdout=stdout,
                    stderr=stderr,
                    env={**environment, "GPUAGENT_RUN_DIR": str(run_directory)},
                    cwd=working_directory,
                    pass_fds=(ended, news_writer),
                    start_new_session=True,
                )
        except BaseException:
            os.close(self._lifeline)
            self._news.close()
            raise
        finally:
            os.close(ended)
            os.close(news_writer)
        # The supervisor; the program and what it starts are its descendants.
        self.pid = self._process.pid
        self._stopping = threading.Lock()

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL after the grace; return at once."""
        if self._stopping.acquire(blocking=False):
            os.close(self._lifeline)

    def wait_for_program(self) -> None:
        """Wait until the program itself has ended; its children, and the commands for afterwards, may still run."""
        while self.ended_unix_nano is None and (line := self._news.readline()):
            self._read_news(line)

    def wait(self) -> int:
        """Wait for the program and its children; return the exit code, negative for a signal."""
        code = self._process.wait()
        if not self._news.closed:
            for line in self._news:
                self._read_news(line)
            self._news.close()
        self.stop()
        return code

    def _read_news(self, line: str) -> None:
        what, number, *names = line.split()
        if what == "started":
            self.started_unix_nano = int(number)
        elif what == "ended":
            self.ended_unix_nano = int(number)
        elif what == "refused":
            _warn_of_refusal(int(number), int(names[0]))
        else:
            self.left = (int(number), names)


@cache  # once an agent
def _warn_of_refusal(errno: int, option: int) -> None:
    name, effect = _OPTIONS[option]
    _LOG.warning("%s: this kernel refuses %s: %s", effect, name, os.strerror(errno))


def read_unread_end(run_directory: Path) -> int | None:
    """Return when the program of a killed agent ended, in Unix nanoseconds; None: not known.

    The program can write the file as well, so only what can be true counts.
    """
    news = read_run_file(run_directory / supervisor.UNREAD_NEWS, 0, _NEWS_BYTES)
    ended = _ENDED.search(news)
    if ended is None or not 0 < int(ended[1]) <= time.time_ns():
        return None
    return int(ended[1])
