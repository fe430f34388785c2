"""Shows runs while they are executed: their output as it comes, a line when one ends."""

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import click

from gpuagent.runs.events import EventTailer
from gpuagent.sources.source import Value
from gpuagent_common.errors import GpuAgentError
from gpuagent_proto.v1.run_pb2 import RunUpdate

# How often to look for output: often enough for a reader, and seldom enough beside what is measured.
_POLL_SECONDS = 0.25

_CHUNK_BYTES = 64 * 1024

# Results that are worth a place in the line of a run; all are stored.
_SHOWN_RESULTS = ("throughput", "accuracy", "loss")


@dataclass(slots=True, kw_only=True)
class FollowedRun:
    """One run as far as it has come."""

    run_id: str
    repeat: int
    status: str
    exit_code: int | None
    reason: str
    directory: Path
    started: float | None = None
    seconds: float | None = None
    results: Mapping[str, Value] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return what `gpuagent run --json` prints of it."""
        return {
            "run_id": self.run_id,
            "repeat": self.repeat,
            "status": self.status,
            "exit_code": self.exit_code,
            "reason": self.reason or None,
            "seconds": self.seconds,
            "run_directory": str(self.directory),
            "results": dict(self.results),
        }


class Follower:
    """Follows runs to their end."""

    def __init__(self, *, runs: int, quiet_stdout: bool) -> None:
        self._expected = runs
        self._quiet_stdout = quiet_stdout
        self._by_id: dict[str, FollowedRun] = {}
        self._output: _OutputCopy | None = None

    @property
    def runs(self) -> list[FollowedRun]:
        """The runs, in the order they were queued."""
        return list(self._by_id.values())

    @property
    def exit_code(self) -> int:
        """The first exit code that is not 0, as a shell would give it; 1 where a run has failed without one."""
        return next((code for code in map(_shell_code, self.runs) if code), 0)

    def follow(self, updates: Iterator[RunUpdate]) -> None:
        """Show what `updates` tell until they end. Ctrl-C passes through: closing `updates` cancels the runs."""
        try:
            for update in updates:
                self._take(update)
            if any(run.status in ("queued", "running") for run in self.runs):
                raise GpuAgentError("the agent on this node ended before the run did")
        finally:
            if self._output:
                self._output.finish()

    def _take(self, update: RunUpdate) -> None:
        run = self._by_id.setdefault(update.run_id, _followed(update))
        run.status, run.reason = update.status, update.reason
        run.exit_code = update.exit_code if update.HasField("exit_code") else None
        if update.status == "running":
            run.started = time.monotonic()
            click.echo(f"gpuagent: {self._position(run)}{run.run_id} runs", err=True)
            self._output = _OutputCopy(run.directory, quiet_stdout=self._quiet_stdout)
        elif update.status != "queued":
            self._end(run)

    def _end(self, run: FollowedRun) -> None:
        if self._output:
            self._output.finish()
            self._output = None
        run.seconds = time.monotonic() - run.started if run.started else None
        digest = EventTailer(run.run_id, run.directory).read_all()
        run.results, run.units = digest.results, digest.units
        click.echo(f"gpuagent: {self._position(run)}{_closing_line(run)}", err=True)
        if digest.complaint:
            click.echo(f"gpuagent: {digest.complaint}; docs/run-directory.md has the format", err=True)

    def _position(self, run: FollowedRun) -> str:
        position = list(self._by_id).index(run.run_id) + 1
        return f"[{position}/{self._expected}] " if self._expected > 1 else ""


def _followed(update: RunUpdate) -> FollowedRun:
    return FollowedRun(
        run_id=update.run_id,
        repeat=update.repeat,
        status=update.status,
        exit_code=None,
        reason=update.reason,
        directory=Path(update.run_directory),
    )


def _closing_line(run: FollowedRun) -> str:
    line = f"{run.run_id} {run.status.replace('_', ' ')}"
    if run.seconds is not None:
        line += f" in {run.seconds:.1f} s"
    figures = [
        f"{name} {value:,.4g} {run.units.get(name, '')}".rstrip()
        for name in _SHOWN_RESULTS
        if isinstance(value := run.results.get(name), float | int)
    ]
    if figures:
        line += f": {', '.join(figures)}"
    if run.reason:
        line += f": {run.reason}; its output is in {run.directory}"
    return line


def _shell_code(run: FollowedRun) -> int:
    if run.status == "succeeded":
        return 0
    if run.status == "cancelled":
        return 130
    if run.exit_code is None or run.status != "failed":
        return 1
    return 128 - run.exit_code if run.exit_code < 0 else run.exit_code or 1


class _OutputCopy:
    """Copies a run's stdout and stderr to ours while they grow."""

    def __init__(self, directory: Path, *, quiet_stdout: bool) -> None:
        self._sources = [(directory / "stdout", quiet_stdout), (directory / "stderr", True)]
        self._offsets = [0, 0]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Copy the rest and stop."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        # A terminal that is gone or a full disk behind ours must not end the run.
        with contextlib.suppress(OSError):
            while not self._stop.wait(_POLL_SECONDS):
                self._copy()
            self._copy()

    def _copy(self) -> None:
        for index, (path, to_stderr) in enumerate(self._sources):
            if _size_bytes(path) > self._offsets[index]:
                with path.open("rb") as file:
                    file.seek(self._offsets[index])
                    self._offsets[index] += _copy_rest(file, to_stderr=to_stderr)


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _copy_rest(file: BinaryIO, *, to_stderr: bool) -> int:
    copied = 0
    while chunk := file.read(_CHUNK_BYTES):
        click.echo(chunk, nl=False, err=to_stderr)
        copied += len(chunk)
    return copied
