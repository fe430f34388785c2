"""The run directory's events files: read what a workload reported, as rows of the collector's tables."""

import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuagent.sampling.rows import Row
from gpuagent.sources.source import Value
from gpuagent_common.keys import key

_EVENTS_FILE = re.compile(r"events\.(\d{1,6})\.(\d{1,6})\.jsonl")
# How much of one file is read at a time; the rest is read with the next flush.
_READ_BYTES = 256 * 1024

# A longer line is not an event.
MAX_LINE_BYTES = 64 * 1024

_MAX_INTEGER = 2**63 - 1


class MalformedEventError(ValueError):
    """A line that is not an event of the run directory's contract (docs/run-directory.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """A row for `table`."""

    table: str
    row: Row


@dataclass(slots=True)
class Digest:
    """What a run has reported so far, as far as the agent itself needs it."""

    phase: str | None = None
    # The run's: throughput added up over its ranks, as the collector does; of others what the first rank said.
    results: dict[str, Value] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    malformed: int = 0


class EventTailer:
    """Follows the events files of one run directory from where it stopped reading."""

    def __init__(self, run_id: str, directory: Path, offsets: Mapping[str, int] | None = None) -> None:
        self._run_id = run_id
        self._directory = directory
        # Bytes read of each events file.
        self.offsets: dict[str, int] = dict(offsets or {})
        self.digest = Digest()
        # Of each result, what each rank said last.
        self._by_rank: dict[str, dict[int, Value]] = {}

    def read_new(self) -> Iterator[EventRow]:
        """Yield the rows of every complete line that has come since the last call."""
        named = ((_EVENTS_FILE.fullmatch(path.name), path) for path in self._directory.glob("events.*.jsonl"))
        files = ((int(name[1]), int(name[2]), path) for name, path in named if name)
        # A restart's file comes after those before it, whose results it supersedes.
        for rank, _restart, path in sorted(files):
            yield from self._read_file(path, rank)

    def _read_file(self, path: Path, rank: int) -> Iterator[EventRow]:
        data = _read_at(path, self.offsets.get(path.name, 0))
        complete = data.rfind(b"\n") + 1
        if not complete and len(data) > MAX_LINE_BYTES:
            # No end of line in sight: skip it rather than wait for ever.
            complete = len(data)
        self.offsets[path.name] = self.offsets.get(path.name, 0) + complete
        for line in data[:complete].splitlines():
            yield from self._take_line(line, rank)

    def _take_line(self, line: bytes, rank: int) -> Iterator[EventRow]:
        try:
            event = parse_event(line)
            parsed = event_row(event, self._run_id, rank)
        except (MalformedEventError, RecursionError) as error:
            self.digest.malformed += 1
            if self.digest.malformed == 1:
                detail = json.dumps({"error": str(error), "line": line[:200].decode("utf-8", "replace")})
                common: dict[str, Value] = {"time": time.time_ns(), "run_id": self._run_id, "rank": rank}
                yield EventRow(table="run_events", row={**common, "event": "malformed", "detail": detail})
            return
        self._note(event, rank)
        yield parsed

    def _note(self, event: Mapping[str, object], rank: int) -> None:
        name = event.get("name")
        if event["event"] == "phase":
            self.digest.phase = str(name)
        elif event["event"] == "result":
            value = event.get("value")
            by_rank = self._by_rank.setdefault(str(name), {})
            by_rank[rank] = value if isinstance(value, float | int | str) else None
            self.digest.results[str(name)] = _of_run(str(name), by_rank)
            self.digest.units[str(name)] = str(event.get("unit") or "")


def _of_run(name: str, by_rank: Mapping[int, Value]) -> Value:
    numbers = [value for value in by_rank.values() if isinstance(value, float | int)]
    if name == "throughput" and len(numbers) == len(by_rank):
        return sum(numbers)
    return by_rank[min(by_rank)]


def _read_at(path: Path, offset: int) -> bytes:
    """Return what a regular file holds from `offset` on; nothing where there is no such file."""
    try:
        # A workload can put a pipe there, on which an ordinary open would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return b""
    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return os.pread(descriptor, _READ_BYTES, offset) if is_file else b""
    finally:
        os.close(descriptor)


def parse_event(line: bytes) -> dict[str, object]:
    """Return the event that `line` holds: an object with `t` (Unix nanoseconds) and `event` (text).

    Raises:
        MalformedEventError: it holds none.
    """
    if len(line) > MAX_LINE_BYTES:
        raise MalformedEventError(f"the line is longer than {MAX_LINE_BYTES} bytes")
    try:
        event = json.loads(line)
        # What Python reads can be more than JSON: NaN, 1e999, half of a surrogate pair. A store takes none of those.
        json.dumps(event, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise MalformedEventError(f"not JSON: {error}") from error
    if not isinstance(event, dict):
        raise MalformedEventError("not an object")
    if not isinstance(event.get("event"), str):
        raise MalformedEventError("'event' is missing or not a text")
    _integer(event, "t", required=True)
    return event


def event_row(event: Mapping[str, object], run_id: str, rank: int) -> EventRow:
    """Return the row that stores `event`.

    Raises:
        MalformedEventError: a field is missing or of the wrong kind.
    """
    common: dict[str, Value] = {"time": _integer(event, "t", required=True), "run_id": run_id, "rank": rank}
    return _ROWS.get(str(event["event"]), _other_row)(event, common)


def _step_row(event: Mapping[str, object], common: dict[str, Value]) -> EventRow:
    row = {
        **common,
        "phase": _text(event, "phase"),
        "step": _integer(event, "step", required=True),
        "wall_seconds": _number(event, "wall_seconds"),
        "gpu_seconds": _number(event, "gpu_seconds"),
        "items": _number(event, "items"),
    }
    return EventRow(table="steps", row=row)


def _result_row(event: Mapping[str, object], common: dict[str, Value]) -> EventRow:
    is_text = isinstance(event.get("value"), str)
    row = {
        **common,
        "phase": _text(event, "phase"),
        "name": _text(event, "name", required=True),
        "value": None if is_text else _number(event, "value", required=True),
        "value_text": _text(event, "value") if is_text else None,
        "unit": _text(event, "unit"),
    }
    return EventRow(table="results", row=row)


def _op_row(event: Mapping[str, object], common: dict[str, Value]) -> EventRow:
    row = {
        **common,
        "kind": _text(event, "kind", required=True),
        "name": _text(event, "name", required=True),
        "calls": _integer(event, "calls", required=True),
        "steps": _integer(event, "steps", required=True),
        "cpu_seconds": _number(event, "cpu_seconds"),
        "cpu_self_seconds": _number(event, "cpu_self_seconds"),
        "gpu_seconds": _number(event, "gpu_seconds"),
        "gpu_self_seconds": _number(event, "gpu_self_seconds"),
    }
    return EventRow(table="op_times", row=row)


def _device_row(event: Mapping[str, object], common: dict[str, Value]) -> EventRow:
    uuid = _text(event, "uuid")
    device_id = key(uuid) if uuid else None
    row = {**common, "device_id": device_id, "pid": _integer(event, "pid"), "found_by": "workload"}
    return EventRow(table="run_devices", row=row)


def _other_row(event: Mapping[str, object], common: dict[str, Value]) -> EventRow:
    rest = {name: value for name, value in event.items() if name not in ("t", "event", "name")}
    detail = json.dumps(rest) if rest else None
    name = _text(event, "name", required=event["event"] == "phase")
    return EventRow(table="run_events", row={**common, "event": str(event["event"]), "name": name, "detail": detail})


_ROWS: Mapping[str, Callable[[Mapping[str, object], dict[str, Value]], EventRow]] = {
    "step": _step_row,
    "result": _result_row,
    "op": _op_row,
    "device": _device_row,
}


def _integer(event: Mapping[str, object], name: str, *, required: bool = False) -> int | None:
    value = event.get(name)
    if value is None and not required:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _MAX_INTEGER:
        raise MalformedEventError(f"'{name}' is missing or not a 64-bit integer")
    return value


def _number(event: Mapping[str, object], name: str, *, required: bool = False) -> float | None:
    value = event.get(name)
    if value is None and not required:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > 1.7e308:
        raise MalformedEventError(f"'{name}' is missing or not a number")
    return float(value)


def _text(event: Mapping[str, object], name: str, *, required: bool = False) -> str | None:
    value = event.get(name)
    if value is None and not required:
        return None
    if not isinstance(value, str):
        raise MalformedEventError(f"'{name}' is missing or not a text")
    return value
