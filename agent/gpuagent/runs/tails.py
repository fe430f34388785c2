"""The events files of every open run."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuagent.runs.events import Digest, EventTailer
from gpuagent.sampling.rows import RecordBuffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Tailed:
    """The progress of one read of the run directories: offsets, and the runs that it opens or closes."""

    opened: Mapping[str, Path] = field(default_factory=dict)
    offsets: Mapping[tuple[str, str], int] = field(default_factory=dict)
    closed: tuple[str, ...] = ()


class Tails:
    """The tailers of open runs. Only `read` advances them: rows and offsets reach the spool in one transaction."""

    def __init__(self, buffer: RecordBuffer) -> None:
        self._buffer = buffer
        self._lock = threading.Lock()
        self._tailers: dict[str, EventTailer] = {}
        self._opened: dict[str, Path] = {}
        self._closed: list[str] = []

    def announce(self, run_id: str, directory: Path) -> None:
        """Record a run in the spool, so that a later agent finds it if this one is killed."""
        with self._lock:
            self._opened[run_id] = directory

    def open(self, run_id: str, directory: Path, offsets: dict[str, int] | None = None) -> None:
        """Follow a run from its start, or from `offsets`."""
        with self._lock:
            self._tailers[run_id] = EventTailer(run_id, directory, offsets)

    def close(self, run_id: str) -> None:
        """Stop following a run; rows already in the buffer go into the same transaction."""
        with self._lock:
            self._tailers.pop(run_id, None)
            self._closed.append(run_id)

    def offsets(self, run_id: str) -> dict[str, int]:
        """Return the bytes read of each events file of an open run."""
        with self._lock:
            return dict(self._tailers[run_id].offsets)

    def digest(self, run_id: str) -> Digest:
        """Return the summary of the events of an open run."""
        with self._lock:
            return self._tailers[run_id].digest

    def read(self) -> Tailed:
        """Add the events since the last call to the buffer; return the progress."""
        offsets: dict[tuple[str, str], int] = {}
        with self._lock:
            for run_id, tailer in self._tailers.items():
                before = dict(tailer.offsets)
                for parsed in tailer.read_new():
                    self._buffer.add_record(parsed.table, parsed.row)
                offsets |= {(run_id, name): at for name, at in tailer.offsets.items() if at != before.get(name)}
            opened, self._opened = self._opened, {}
            closed, self._closed = tuple(self._closed), []
        return Tailed(opened=opened, offsets=offsets, closed=closed)
