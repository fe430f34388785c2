"""What has been done of an experiment on this node, kept so that an interrupted one goes on where it stopped."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpuagent.experiment.plan import Trial
from gpuagent_common.errors import GpuAgentError, MisuseError


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """One run that has ended: how, after how many seconds (cool-down included), and at what energy in joules."""

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
        GpuAgentError: it cannot be read or written.
    """

    def __init__(self, path: Path, fingerprint: str) -> None:
        self._path = path
        self._fingerprint = fingerprint
        try:
            self._done = self._load()
        except OSError as error:
            raise GpuAgentError(f"cannot read {path}: {error.strerror}") from error
        self._ended = {(done.cell, done.repeat) for done in self._done}

    def _load(self) -> list[Done]:
        lines = list(_whole_lines(self._path))
        if not lines:
            return []
        first, *rest = lines
        if first.get("plan") != self._fingerprint:
            raise MisuseError(
                f"an experiment with this name has begun here with other runs ({self._path}); "
                "give this one another name, since runs of both would be compared as one"
            )
        return [Done(**line) for line in rest]

    @property
    def done(self) -> tuple[Done, ...]:
        """Every run that has ended, in the order of their ends."""
        return tuple(self._done)

    def ended(self, trial: Trial) -> bool:
        """Return whether this run has ended, in whatever way: what failed is not run again until it suits."""
        return (trial.cell.key, trial.repeat) in self._ended

    def failures(self, cell: str) -> int:
        """Return how many runs of a cell did not succeed."""
        return sum(1 for done in self._done if done.cell == cell and done.status != "succeeded")

    def add(self, done: Done) -> None:
        """Note that a run has ended. Raises GpuAgentError when that cannot be written."""
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
    """Yield the lines of a journal; a last one that was cut short by a crash is taken off the file."""
    content = path.read_bytes() if path.exists() else b""
    whole, _, rest = content.rpartition(b"\n")
    if rest:
        with path.open("r+b") as file:
            file.truncate(len(content) - len(rest))
    for line in whole.splitlines():
        try:
            yield dict(json.loads(line))
        except (ValueError, TypeError) as error:
            raise GpuAgentError(f"{path} is damaged; move it away to begin the experiment anew") from error
