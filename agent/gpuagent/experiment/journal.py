"""The runs of an experiment that have ended on this node, so that an interrupted one resumes."""

import json
import os
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpuagent.experiment.plan import Trial
from gpuagent_common.errors import GpuAgentError, MisuseError


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """One run that has ended; its seconds include the cool-down."""

    cell: str
    repeat: int
    run_id: str
    status: str
    seconds: float
    gpu_joules: float | None


class Journal:
    """A file of JSON lines: the plan's fingerprint, then one line a run, on the disk before the next run begins.

    Raises:
        MisuseError: the file is of another plan with the same name.
        GpuAgentError: the file cannot be read or written.
    """

    def __init__(self, path: Path, fingerprint: str) -> None:
        self._path = path
        self._fingerprint = fingerprint
        try:
            plan, *done = list(_whole_lines(path)) or [{"plan": fingerprint}]
        except OSError as error:
            raise GpuAgentError(f"cannot read {path}: {error.strerror}") from error
        if plan.get("plan") != fingerprint:
            raise MisuseError(
                f"an experiment with this name has begun here with other runs ({path}); "
                "give this one another name, since runs of both would be compared as one"
            )
        self._done = [Done(**line) for line in done]
        self._ended = {(done.cell, done.repeat) for done in self._done}

    @property
    def done(self) -> tuple[Done, ...]:
        """Every run that has ended, in the order of their ends."""
        return tuple(self._done)

    def left(self, trials: Iterable[Trial]) -> list[Trial]:
        """Return the runs that have not ended. Failed runs have: repeating them until they succeed would bias."""
        return [trial for trial in trials if (trial.cell.key, trial.repeat) not in self._ended]

    def failures(self, cell: str) -> int:
        """Return the number of runs of a cell that did not succeed."""
        return sum(1 for done in self._done if done.cell == cell and done.status != "succeeded")

    def expected_seconds(self, trials: Iterable[Trial]) -> float:
        """Return the expected time of runs, from those of the same cell, or else of all; 0 before the first."""
        if not self._done:
            return 0.0
        by_cell: dict[str, list[float]] = {}
        for one in self._done:
            by_cell.setdefault(one.cell, []).append(one.seconds)
        every = [one.seconds for one in self._done]
        return sum(statistics.mean(by_cell.get(trial.cell.key, every)) for trial in trials)

    def add(self, done: Done) -> None:
        """Store that a run has ended. Raises GpuAgentError when the file cannot be written."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                lines = [asdict(done)] if file.tell() else [{"plan": self._fingerprint}, asdict(done)]
                file.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise GpuAgentError(f"cannot write {self._path}: {error.strerror}") from error
        self._done.append(done)
        self._ended.add((done.cell, done.repeat))


def _whole_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a journal; a last one that a crash cut short is removed from the file."""
    content = path.read_bytes() if path.exists() else b""
    whole, _, rest = content.rpartition(b"\n")
    if rest:
        with path.open("r+b") as file:
            file.truncate(len(content) - len(rest))
    for line in whole.splitlines():
        try:
            yield dict(json.loads(line))
        except (ValueError, TypeError) as error:
            raise GpuAgentError(f"{path} is damaged; move it away to start the experiment anew") from error
