"""Runs on the terminal during their execution: their output as it comes, and a line at each end."""

import contextlib
import math
import re
import shlex
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import click

from gpuagent.cli.node_agent import PLANNING
from gpuagent.cli.progress import ProgressLine, ReadGpus, has_terminal
from gpuagent.runs.events import SHOWN_RESULTS, Digest, EventTailer
from gpuagent_common.errors import GpuAgentError
from gpuagent_common.program_name import name_program
from gpuagent_common.text import harmless
from gpuagent_common.waiting import SILENT_SECONDS, waiting_for
from gpuagent_proto.v1.run_pb2 import RunSpec, RunUpdate

# Often enough for a reader, and seldom enough beside a measurement.
_POLL_SECONDS = 0.25

_CHUNK_BYTES = 64 * 1024

# The end of a failed program's output that is printed.
_LAST_LINES, _LAST_BYTES = 8, 4096

# Of a line that a program printed.
_LINE_CHARACTERS = 60

# How the usual parsers of command lines name an option that a program does not have.
_REFUSES = re.compile(
    r"unrecogni[sz]ed|unknown|no such|unexpected|not (defined|recogni[sz]ed|supported)|does not exist", re.IGNORECASE
)

# A run that is first in its queue starts sooner.
_QUEUE_SECONDS = SILENT_SECONDS


def read_last_lines(directory: Path) -> Iterator[str]:
    """Yield the last lines of a run's standard error, or of its output where that is empty."""
    for name in ("stderr", "stdout"):
        with contextlib.suppress(OSError), (directory / name).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _LAST_BYTES))
            if lines := file.read().decode(errors="replace").splitlines():
                yield from map(harmless, lines[-_LAST_LINES:])
                return


def describe_misplaced(ours: click.Context, program: Sequence[str], directory: Path) -> str | None:
    """Return where an option of our command belongs that a failed program got and refused; None: it refused none.

    Args:
        ours: that of `gpuagent run` or `gpuagent bench`.
        program: the command of the run, which has the end of its output in `directory`.
    """
    options = {name for each in ours.command.params for name in each.opts}
    refusals = [line for line in read_last_lines(directory) if _REFUSES.search(line)]
    for at, word in enumerate(program):
        option, equals, _ = word.partition("=")
        pattern = rf"\b{re.escape(option.lstrip('-'))}\b"
        if option in options and any(re.search(pattern, line) for line in refusals):
            values = [] if equals else [value for value in program[at + 1 : at + 2] if not value.startswith("-")]
            first = shlex.join([*ours.command_path.split(), word, *values])
            return f"{option} comes after the program, so {name_program(program)} got it; put it first: {first} …"
    return None


@dataclass(slots=True)
class FollowedRun:
    """One run: its last update, and once it has ended, what it reported."""

    update: RunUpdate
    digest: Digest = field(default_factory=Digest)

    @property
    def run_id(self) -> str:
        """Its identity."""
        return self.update.run_id

    @property
    def has_ended(self) -> bool:
        """True once it has ended."""
        return self.update.status not in ("queued", "running")

    @property
    def steps(self) -> str:
        """Its steps in words; empty: none are known."""
        return str(self.digest.steps)

    def as_json(self) -> dict[str, Any]:
        """Return the object that `gpuagent run --json` prints."""
        update = self.update
        return {
            "run_id": update.run_id,
            "repeat": update.repeat,
            "status": update.status,
            "exit_code": update.exit_code if update.HasField("exit_code") else None,
            "reason": update.reason or None,
            "notice": update.notice or None,
            "seconds": update.seconds if update.HasField("seconds") else None,
            "run_directory": update.run_directory,
            "results": self.digest.results,
        }

    @property
    def shell_code(self) -> int:
        """Its exit code as a shell would return it; 1 if it failed without one."""
        code = self.update.exit_code  # 0 where it has none
        if self.update.status == "failed":
            return 128 - code if code < 0 else code or 1
        return {"succeeded": 0, "cancelled": 130}.get(self.update.status, 1)


def words_without_steps(spec: RunSpec, directory: Path) -> str:
    """Return the words on a run in which the steps that were asked for are not found; empty: none were asked for.

    The last line of its output in `directory` shows what a pattern has to fit.
    """
    words = ""
    if spec.observe:
        words = "no steps: the program made none with torch's optimizers or Keras; --pattern finds printed ones"
    elif spec.pattern and spec.pattern != "none":
        words = "no steps: fewer than three lines, at different times, fit the pattern"
    for line in list(read_last_lines(directory))[-1:] if words else ():
        words += f"; its last line is {line.strip()[:_LINE_CHARACTERS]!r}"
    return words


class Follower:
    """A display of runs until their end."""

    def __init__(self, spec: RunSpec, *, quiet_stdout: bool) -> None:
        """Begin to follow the runs of `spec`, with the programs' output on stderr if `quiet_stdout`."""
        self._spec = spec
        self._expected = spec.repeats
        # For the line on a terminal; none of an agent that does not report them.
        self.read_gpus: ReadGpus = lambda _run_id: []
        self._quiet_stdout = quiet_stdout
        self._by_id: dict[str, FollowedRun] = {}
        self._output: OutputCopy | None = None
        # Time since which none of these runs is under way.
        self._free_since = math.inf

    @property
    def runs(self) -> list[FollowedRun]:
        """The runs, in the order they were queued."""
        return list(self._by_id.values())

    @property
    def exit_code(self) -> int:
        """The first exit code that is not 0."""
        return next((run.shell_code for run in self.runs if run.shell_code), 0)

    def follow(self, updates: Iterator[RunUpdate]) -> None:
        """Show `updates` until they end. Ctrl-C passes through: closing `updates` cancels the runs."""
        waits = "gpuagent: waits, because this node runs another program first; Ctrl-C cancels"
        notice = threading.Timer(_QUEUE_SECONDS, click.echo, [waits], {"err": True})
        notice.daemon = True
        try:
            with waiting_for("gpuagent", PLANNING):
                first = list(islice(updates, 1))
            for update in chain(first, updates):
                if update.status == "queued" and update.reason:
                    notice.cancel()
                    click.echo(f"gpuagent: waits: {update.reason}; Ctrl-C cancels", err=True)
                elif update.status != "queued":
                    notice.cancel()
                elif notice.ident is None:  # not started yet
                    notice.start()
                self._take(update)
            if not all(run.has_ended for run in self.runs):
                raise GpuAgentError("the agent on this node ended before the run did")
        finally:
            notice.cancel()
            self._finish_output()

    def _take(self, update: RunUpdate) -> None:
        run = self._by_id.setdefault(update.run_id, FollowedRun(update))
        run.update = update
        self._free_since = min(self._free_since, time.monotonic())
        directory = Path(update.run_directory)
        if update.status == "running":
            waited_seconds = time.monotonic() - self._free_since
            is_late = waited_seconds >= _QUEUE_SECONDS
            self._print(run, f"runs, after it waited {waited_seconds:.0f} s behind other runs" if is_late else "runs")
            self._output = OutputCopy(directory, self._progress(run), quiet_stdout=self._quiet_stdout)
        elif update.status != "queued":
            self._finish_output()
            self._free_since = time.monotonic()
            digest = run.digest = EventTailer(run.run_id, directory).read_all()
            line = update.status.replace("_", " ")
            if update.HasField("seconds"):
                line += f" in {update.seconds:.1f} s"
            if figures := [f"{name} {text}" for name in SHOWN_RESULTS if (text := digest.write_result(name))]:
                line += f": {', '.join(figures)}"
            if update.reason:
                # A program that did not start has no exit code and no output.
                line += f": {update.reason}" + (f"; output: {directory}" if update.HasField("exit_code") else "")
            self._print(run, line)
            words = run.steps if not has_terminal() else ""
            if not run.steps and update.status == "succeeded":
                words = words_without_steps(self._spec, directory)
            if words:
                self._print(run, words)
            if update.notice:
                self._print(run, update.notice)
            if digest.complaint:
                click.echo(f"gpuagent: {harmless(digest.complaint)}; docs/run-directory.md has the format", err=True)

    def print_steps(self) -> None:
        """Print the steps of all runs, which on a terminal wait for figures that say them too."""
        for run in self.runs:
            if run.steps:
                self._print(run, run.steps)

    def _progress(self, run: FollowedRun) -> ProgressLine | None:
        ended = [other.update for other in self.runs if other.update.status == "succeeded"]
        took = [update.seconds for update in ended if update.HasField("seconds")]
        usual = sum(took) / len(took) if took else None
        directory = Path(run.update.run_directory)
        return ProgressLine(run.run_id, directory, self.read_gpus, usual) if has_terminal() else None

    def _finish_output(self) -> None:
        if self._output:
            self._output.finish()
            self._output = None

    def _print(self, run: FollowedRun, words: str) -> None:
        position = f"[{list(self._by_id).index(run.run_id) + 1}/{self._expected}] " if self._expected > 1 else ""
        click.echo(f"gpuagent: {position}{run.run_id} {harmless(words)}", err=True)


class OutputCopy:
    """A copy of a run's growing stdout and stderr to ours, above a line of progress; or that line alone."""

    def __init__(
        self, directory: Path, progress: ProgressLine | None, *, quiet_stdout: bool, is_silent: bool = False
    ) -> None:
        self._progress = progress
        # Whether the terminal's cursor is at the start of a line.
        self._is_at_line_start = True
        self._sources = [] if is_silent else [(directory / "stdout", quiet_stdout), (directory / "stderr", True)]
        self._offsets = [0, 0]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Copy the rest and stop."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        # A closed terminal or a full disk behind ours must not end the run.
        with contextlib.suppress(OSError):
            while not self._stop.wait(_POLL_SECONDS):
                self._copy()
                if self._progress:
                    self._progress.draw(is_at_line_start=self._is_at_line_start)
            if self._progress:
                self._progress.clear()
            self._copy()

    def _copy(self) -> None:
        for index, (path, to_stderr) in enumerate(self._sources):
            with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
                file.seek(self._offsets[index])
                while chunk := file.read(_CHUNK_BYTES):
                    if self._progress:
                        self._progress.clear()
                    if (sys.stderr if to_stderr else sys.stdout).isatty():
                        self._is_at_line_start = chunk.endswith(b"\n")
                    click.echo(chunk, nl=False, err=to_stderr)
                    self._offsets[index] += len(chunk)
