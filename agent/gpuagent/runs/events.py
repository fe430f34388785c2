"""The events files of a run directory, of one run or every open one, read as rows of the collector's tables."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import cast

from gpuagent.environments.support.common import read_run_file
from gpuagent.redaction import redact_text
from gpuagent.runs.printed import PRINTED_FILE
from gpuagent.runs.steps import RunSteps, write_figure
from gpuagent.sampling.rows import RecordBuffer, Row
from gpuagent.sources.source import Value
from gpuagent_common.keys import key
from gpuagent_common.ranges import drop_impossible, find_impossible
from gpuagent_common.text import counted

Event = Mapping[str, object]

_EVENTS_FILE = re.compile(r"events\.(\d{1,6})\.(\d{1,6})\.jsonl")

# Limit of one read of one file; the next flush reads on.
_READ_BYTES = 256 * 1024

# A longer line is malformed.
MAX_LINE_BYTES = 64 * 1024

_MAX_INTEGER = 2**63 - 1

# The results in the line of a run, which a pod sends back for that; all are stored.
SHOWN_RESULTS = ("throughput", "accuracy", "loss")


class MalformedEventError(ValueError):
    """A line that does not follow docs/run-directory.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """A row for `table`."""

    table: str
    row: Row


@dataclass(slots=True)
class Digest:
    """A summary of the events of a run, as far as the agent needs it."""

    phase: str | None = None
    # When the program began to run again what is counted, which is no part of its run; None: it did not.
    counted_unix_nano: int | None = None
    # Throughput summed over ranks; every other result from the first rank, as the collector does.
    results: dict[str, Value] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    steps: RunSteps = field(default_factory=RunSteps)
    malformed: int = 0
    # The error of the first malformed line.
    first_error: str | None = None
    # A file whose name is almost that of an events file, so that nothing reads it.
    misnamed: str | None = None

    @property
    def complaint(self) -> str | None:
        """The malformed lines and the misnamed file in words for the user; None: there are none."""
        if self.misnamed:
            return f"{self.misnamed} was not read: events go to events.RANK.RESTART.jsonl"
        lines = counted(self.malformed, "line")
        return f"{lines} of events not understood (first: {self.first_error})" if self.malformed else None

    def write_result(self, name: str) -> str:
        """Return a result with its unit; empty: it is not reported, or no number."""
        value = self.results.get(name)
        if not isinstance(value, float | int):
            return ""
        return f"{write_figure(value)} {self.units.get(name, '')}".rstrip()


class EventTailer:
    """A reader of the events files of one run directory that continues at its offsets."""

    def __init__(self, run_id: str, directory: Path, offsets: Mapping[str, int] | None = None) -> None:
        self._run_id = run_id
        self._directory = directory
        # Bytes read of each events file.
        self.offsets: dict[str, int] = dict(offsets or {})
        self.digest = Digest()
        # The latest value of each result by rank.
        self._by_rank: dict[str, dict[int, Value]] = {}

    def read_new(self) -> Iterator[EventRow]:
        """Yield the rows of every line that was completed since the last call."""
        named = ((_EVENTS_FILE.fullmatch(path.name), path) for path in self._directory.glob("events.*.jsonl"))
        # Ordered by restart within a rank: a restart supersedes the results before it. What was printed comes last.
        ordered = sorted((int(name[1]), int(name[2]), path) for name, path in named if name)
        for rank, _restart, path in [*ordered, (0, 0, self._directory / PRINTED_FILE)]:
            offset = self.offsets.get(path.name, 0)
            data = read_run_file(path, offset, _READ_BYTES)
            complete = data.rfind(b"\n") + 1
            if not complete and len(data) > MAX_LINE_BYTES:
                complete = len(data)  # skip a line without end rather than wait for ever
            if complete:
                self.offsets[path.name] = offset + complete
            for line in data[:complete].splitlines():
                yield from self._take_line(line, rank)

    def read_all(self) -> Digest:
        """Read to the end of every file; return the digest with the figures of its steps, without the rows."""
        before: dict[str, int] | None = None
        while before != self.offsets:
            before = dict(self.offsets)
            for _ in self.read_new():
                pass
        for figure in list(self.digest.steps.figures(self.digest.results)):
            self._take_result(figure.rank, figure.name, figure.value, figure.unit)
        others = {path.name for path in self._directory.glob("events*") if not _EVENTS_FILE.fullmatch(path.name)}
        self.digest.misnamed = min(others, default=None)
        return self.digest

    def _take_line(self, line: bytes, rank: int) -> Iterator[EventRow]:
        try:
            event = parse_event(line)
            # All of the line is checked before any of it counts.
            parsed = list(event_rows(event, self._run_id, rank))
            waited = _number(event, "data_wait_seconds") if event["event"] in ("step", "steps") else None
        except (MalformedEventError, RecursionError) as error:
            yield from self._complain(line, rank, str(error))
            return
        impossible = [each for row in parsed for each in find_impossible(row.table, row.row)]
        impossible += find_impossible("steps", {"data_wait_seconds": waited})
        if impossible:
            column, value = impossible[0]
            yield from self._complain(line, rank, f"'{column}' is {value}, which is impossible; it is left out")
            parsed = [EventRow(table=each.table, row=drop_impossible(each.table, each.row)) for each in parsed]
            waited = None
        name = str(event.get("name"))
        if event["event"] == "refused":
            yield from self._complain(line, rank, f"'{name}' is {event.get('value')}, which is no number")
            return
        if event["event"] == "phase":
            self.digest.phase = name
            if name == "counters" and self.digest.counted_unix_nano is None:
                self.digest.counted_unix_nano = _integer(event, "t", required=True)
        elif event["event"] == "found":
            self.digest.steps.found_by = name
        elif event["event"] == "result":
            self._take_result(rank, name, event.get("value"), event.get("unit"))
        elif event["event"] in ("step", "steps"):
            self._take_steps(rank, event, parsed, waited)
        yield from parsed

    def _complain(self, line: bytes, rank: int, error: str) -> Iterator[EventRow]:
        """Count a line with something that cannot be stored; yield the first as an event."""
        self.digest.malformed += 1
        if self.digest.malformed == 1:
            # A store keeps the line, so secrets are hidden, and before it is cut: a cut one may look harmless.
            shown = redact_text(line[:MAX_LINE_BYTES].decode("utf-8", "replace"))[:200]
            self.digest.first_error = error
            detail = json.dumps({"error": error, "line": shown})
            common: dict[str, Value] = {"time": time.time_ns(), "run_id": self._run_id, "rank": rank}
            yield EventRow(table="run_events", row={**common, "event": "malformed", "detail": detail})

    def _take_result(self, rank: int, name: str, value: object, unit: object) -> None:
        by_rank = self._by_rank.setdefault(name, {})
        by_rank[rank] = value if isinstance(value, float | int | str) else None
        numbers = [value for value in by_rank.values() if isinstance(value, float | int)]
        self.digest.results[name] = (
            sum(numbers) if name == "throughput" and len(numbers) == len(by_rank) else by_rank[min(by_rank)]
        )
        self.digest.units[name] = str(unit or "")

    def _take_steps(self, rank: int, event: Event, parsed: Sequence[EventRow], waited: float | None) -> None:
        sums = self.digest.steps.of(rank)
        counts = event.get("counts")
        for index, row in enumerate(each.row for each in parsed):
            seconds = row["wall_seconds"]
            if seconds is None or (event["event"] == "steps" and row["gpu_seconds"] is not None):
                seconds = row["gpu_seconds"]  # between the ends of steps, which is the pace of the device
            count = counts[index] if isinstance(counts, list) else 1
            items = row["items"]
            sums.add(row["phase"], count, _as_float(seconds), _as_float(items), _as_float(row["gpu_seconds"]))
        if waited is not None and event.get("phase") == "measure":
            sums.data_wait_seconds = (sums.data_wait_seconds or 0.0) + waited


def _as_float(value: Value) -> float | None:
    return float(value) if isinstance(value, float | int) else None


def parse_event(line: bytes) -> dict[str, object]:
    """Return the event in `line`: an object with `t` (Unix nanoseconds) and `event` (text).

    Raises MalformedEventError: the line is something else.
    """
    if len(line) > MAX_LINE_BYTES:
        raise MalformedEventError(f"the line is longer than {MAX_LINE_BYTES} bytes")
    try:
        event = json.loads(line)
        # Python reads more than JSON: NaN, 1e999, half of a surrogate pair. No store takes those.
        json.dumps(event, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise MalformedEventError(f"not JSON: {error}") from error
    if not isinstance(event, dict):
        raise MalformedEventError("not an object")
    if not isinstance(event.get("event"), str):
        raise MalformedEventError("'event' is missing or not a text")
    _integer(event, "t", required=True)
    return event


def event_rows(event: Event, run_id: str, rank: int) -> Iterator[EventRow]:
    """Yield the rows that store `event`: one, or one for each of several steps.

    Raises MalformedEventError: a field is missing or of the wrong type.
    """
    if event["event"] != "steps":
        yield event_row(event, run_id, rank)
        return
    for one in _each_step(event):
        yield event_row(one, run_id, rank)


def _each_step(event: Event) -> Iterator[Event]:
    """Yield the steps of an event `steps`, each as an event.

    Raises MalformedEventError: a list is missing, has another length or something else in it.
    """
    # In the short form steps follow one another and the last ends at `t`; their times are in nanoseconds.
    wall = event.get("wall_nano", event.get("wall_seconds"))
    if not isinstance(wall, list):
        raise MalformedEventError("'wall_seconds' is missing or not a list")
    lists: dict[str, object] = {"t": event.get("ended_unix_nano"), "step": event.get("numbers"), "wall_seconds": wall}
    lists |= {name: event[name] for name in ("gpu_seconds", "items", "counts") if name in event}
    if not isinstance(lists.get("items", []), list):
        lists["items"] = [lists["items"]] * len(wall)
    if "numbers" not in event:
        first = _integer(event, "step", required=True) or 0
        lists["step"] = list(range(first, first + len(wall)))
    if "wall_nano" in event:
        last = _integer(event, "t", required=True) or 0
        later = accumulate(_count(took, "wall_nano") for took in reversed(wall[1:]))
        lists["t"] = [last - nano for nano in reversed([0, *later])]
        lists["wall_seconds"] = _in_seconds(wall, "wall_nano")
        if "gpu_nano" in event:
            lists["gpu_seconds"] = _in_seconds(event["gpu_nano"], "gpu_nano")
    count = len(cast("list[object]", lists["wall_seconds"]))
    for name, values in lists.items():
        if not isinstance(values, list) or len(values) != count:
            raise MalformedEventError(f"'{name}' is not a list of {count} values")
    gaps = event.get("gaps")
    for index in range(count):
        one = {name: cast("list[object]", values)[index] for name, values in lists.items()}
        _count(one.pop("counts", 0), "counts")
        # The interval holds something else besides the step, whose own time nobody knows.
        gap = {"wall_seconds": None, "gpu_seconds": None} if isinstance(gaps, list) and index in gaps else {}
        yield {"event": "step", "phase": event.get("phase"), **one, **gap}


def _in_seconds(values: object, name: str) -> list[float | None]:
    if not isinstance(values, list):
        raise MalformedEventError(f"'{name}' is not a list")
    return [None if value is None else _count(value, name) / 1e9 for value in values]


def _count(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_INTEGER:
        raise MalformedEventError(f"'{name}' has a value that is no count")
    return value


def event_row(event: Event, run_id: str, rank: int) -> EventRow:
    """Return the row that stores `event`. Raises MalformedEventError where a field is missing or of the wrong type."""
    row: dict[str, Value] = {"time": _integer(event, "t", required=True), "run_id": run_id, "rank": rank}
    kind = str(event["event"])
    if kind == "result":
        is_text = isinstance(event.get("value"), str)
        row |= {name: field(event, name) for name, field in _RESULT_FIELDS.items()}
        row["value"] = None if is_text else _number(event, "value", required=True)
        row["value_text"] = _text(event, "value") if is_text else None
        return EventRow(table="results", row=row)
    if kind == "device":
        uuid = _text(event, "uuid")
        row |= {"device_id": key(uuid) if uuid else None, "pid": _integer(event, "pid"), "found_by": "workload"}
        return EventRow(table="run_devices", row=row)
    if kind in _TABLES:
        table, fields = _TABLES[kind]
        return EventRow(table=table, row=row | {name: field(event, name) for name, field in fields.items()})
    rest = {name: value for name, value in event.items() if name not in ("t", "event", "name")}
    row |= {"event": kind, "name": _text(event, "name", required=kind == "phase")}
    return EventRow(table="run_events", row=row | {"detail": json.dumps(rest) if rest else None})


def _integer(event: Event, name: str, *, required: bool = False) -> int | None:
    value = event.get(name)
    if value is None and not required:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _MAX_INTEGER:
        raise MalformedEventError(f"'{name}' is missing or not a 64-bit integer")
    return value


def _number(event: Event, name: str, *, required: bool = False) -> float | None:
    value = event.get(name)
    if value is None and not required:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > 1.7e308:
        raise MalformedEventError(f"'{name}' is missing or not a number")
    return float(value)


def _text(event: Event, name: str, *, required: bool = False) -> str | None:
    value = event.get(name)
    if value is None and not required:
        return None
    if not isinstance(value, str):
        raise MalformedEventError(f"'{name}' is missing or not a text")
    return value


_Fields = Mapping[str, Callable[[Event, str], Value]]

_required_text = partial(_text, required=True)
_required_integer = partial(_integer, required=True)

_RESULT_FIELDS: _Fields = {"phase": _text, "name": _required_text, "unit": _text}

# Table and columns of the events whose fields are columns as they are.
_TABLES: Mapping[str, tuple[str, _Fields]] = {
    "step": (
        "steps",
        {"phase": _text, "step": _required_integer, "wall_seconds": _number, "gpu_seconds": _number, "items": _number},
    ),
    "op": (
        "op_times",
        {
            "kind": _required_text,
            "name": _required_text,
            "calls": _required_integer,
            "steps": _required_integer,
            "cpu_seconds": _number,
            "cpu_self_seconds": _number,
            "gpu_seconds": _number,
            "gpu_self_seconds": _number,
        },
    ),
}


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
