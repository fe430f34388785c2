"""Follows the events files of every run that is open."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuagent.runs.events import Digest, EventTailer
from gpuagent.sampling.rows import RecordBuffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Tailed:
    """What was read from run directories: how far, and which runs begin or end with it."""

    opened: Mapping[str, Path] = field(default_factory=dict)
    offsets: Mapping[tuple[str, str], int] = field(default_factory=dict)
    closed: tuple[str, ...] = ()


class Tails:
    """The open runs' tailers. Only `read` moves them, so that rows and offsets reach the spool in one transaction."""

    def __init__(self, buffer: RecordBuffer) -> None:
        self._buffer = buffer
        self._lock = threading.Lock()
        self._tailers: dict[str, EventTailer] = {}
        self._opened: dict[str, Path] = {}
        self._closed: list[str] = []

    def announce(self, run_id: str, directory: Path) -> None:
        """Have the spool remember a run, so that a later agent finds it should this one be killed."""
        with self._lock:
            self._opened[run_id] = directory

    def open(self, run_id: str, directory: Path, offsets: dict[str, int] | None = None) -> None:
        """Follow a run from now on, or from `offsets`."""
        with self._lock:
            self._tailers[run_id] = EventTailer(run_id, directory, offsets)

    def close(self, run_id: str) -> None:
        """Stop following a run; rows that were added to the buffer before go into the same transaction."""
        with self._lock:
            self._tailers.pop(run_id, None)
            self._closed.append(run_id)

    def offsets(self, run_id: str) -> dict[str, int]:
        """Return how far each events file of an open run has been read, in bytes."""
        with self._lock:
            return dict(self._tailers[run_id].offsets)

    def digest(self, run_id: str) -> Digest:
        """Return what an open run has reported so far."""
        with self._lock:
            return self._tailers[run_id].digest

    def read(self) -> Tailed:
        """Add what has been reported since the last call to the buffer; return how far that went."""
        offsets: dict[tuple[str, str], int] = {}
        with self._lock:
            for run_id, tailer in self._tailers.items():
                before = dict(tailer.offsets)
                for parsed in tailer.read_new():
                    self._buffer.add_record(parsed.table, parsed.row)
                changed = {name: offset for name, offset in tailer.offsets.items() if offset != before.get(name)}
                offsets |= {(run_id, name): offset for name, offset in changed.items()}
            opened, self._opened = self._opened, {}
            closed, self._closed = tuple(self._closed), []
        return Tailed(opened=opened, offsets=offsets, closed=closed)
