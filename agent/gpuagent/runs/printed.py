"""The steps that a program prints, found in its output while it runs and reported at its end."""

import contextlib
import itertools
import json
import math
import os
import re
import statistics
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuagent.runs.output import STREAMS
from gpuagent.runs.patterns import MAX_LINE_CHARACTERS, Pattern, Template, metrics_of

# The events that are made of the output, read like those of a rank.
PRINTED_FILE = "printed.jsonl"

_POLL_SECONDS = 0.25
# Limit of one poll of one stream. A program that prints more is read in parts.
_PIECE_BYTES = 64 * 1024
# Beyond this every second one is dropped: a week of lines stays small.
_MAX_MARKS = 8192

# Fewer lines may be chance.
_MIN_MARKS = 3
# As for programs that report their steps: the first ones compile and fill caches.
_WARMUP_STEPS = 5
# A longer interval holds a validation, a checkpoint or an outage besides its steps.
_GAP_RATIO = 3.0
_STEPS_PER_EVENT = 400

_ESCAPES = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]|\x08")
_LINE_ENDS = re.compile(rb"[\r\n]")


@dataclass(frozen=True, slots=True)
class Mark:
    """A matched line: its time and its numbers."""

    unix_nano: int
    values: dict[str, float]


@dataclass(slots=True)
class Series:
    """The lines of one pattern that belong together: one bar of several, or all."""

    pattern: Pattern
    marks: list[Mark] = field(default_factory=list)
    metrics: list[Mark] = field(default_factory=list)

    def add(self, mark: Mark, *, to_metrics: bool = False) -> None:
        """Add a line. Of lines without a time of their own that were read together only the last counts."""
        marks = self.metrics if to_metrics else self.marks
        if marks and marks[-1].unix_nano == mark.unix_nano and not _own_seconds(mark.values):
            marks.pop()
        marks.append(mark)
        if len(marks) > _MAX_MARKS:
            del marks[1::2]

    @property
    def seconds(self) -> float:
        """The time from its first line to its last."""
        return (self.marks[-1].unix_nano - self.marks[0].unix_nano) / 1e9 if self.marks else 0.0


@dataclass(frozen=True, slots=True)
class Interval:
    """The steps between two lines.

    Attributes:
        number: the last step's, as printed or counted.
        steps: their number; 0: not known.
        seconds: of each step, or of all if their number is not known.
        items: likewise; None: not known.
    """

    unix_nano: int
    number: int
    steps: int
    seconds: float
    items: float | None


class PrintedSteps:
    """A reader of a run's output. `run` needs a thread of its own and returns once the run has ended."""

    def __init__(self, directory: Path, patterns: Sequence[Pattern], items_per_step: float | None) -> None:
        self._directory = directory
        self._patterns = patterns
        self._items_per_step = items_per_step
        self._offsets = dict.fromkeys(STREAMS, 0)
        self._series: dict[tuple[str, str], Series] = {}

    def run(self, ended: threading.Event) -> None:
        """Read until the run has ended, then write the events of what was found."""
        while not ended.wait(_POLL_SECONDS):
            self.read()
        while self.read():
            pass
        self.finish()

    def read(self) -> bool:
        """Read what was printed since; return whether there was anything."""
        before = dict(self._offsets)
        for stream in STREAMS:
            with contextlib.suppress(OSError):
                self._read_stream(stream)
        return self._offsets != before

    def _read_stream(self, stream: str) -> None:
        descriptor = os.open(self._directory / stream, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            # The kernel's time of the last write is better than that of reading.
            written_unix_nano = os.fstat(descriptor).st_mtime_ns
            data = os.pread(descriptor, _PIECE_BYTES, self._offsets[stream])
        finally:
            os.close(descriptor)
        complete = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not complete and len(data) == _PIECE_BYTES:
            complete = len(data)
        self._offsets[stream] += complete
        for line in _LINE_ENDS.split(data[:complete]):
            if line:
                self._take(line[: 4 * MAX_LINE_CHARACTERS].decode("utf-8", "replace"), written_unix_nano)

    def _take(self, text: str, unix_nano: int) -> None:
        line = _ESCAPES.sub("", text)[:MAX_LINE_CHARACTERS]
        for pattern in self._patterns:
            if (values := _first_match(pattern.steps, line)) is not None and math.isfinite(values.get("step", 0.0)):
                # Bars of one description and one total are one work, such as the epochs of a training.
                kind = f"{re.sub('[0-9]+', '', line.partition('%')[0])}/{values.get('total')}" if pattern.is_bar else ""
                self._one(pattern, kind).add(Mark(unix_nano, values))
            elif (values := _first_match(pattern.metrics, line)) is not None:
                self._one(pattern, "").add(Mark(unix_nano, values), to_metrics=True)

    def _one(self, pattern: Pattern, kind: str) -> Series:
        return self._series.setdefault((pattern.name, kind), Series(pattern))

    def finish(self) -> None:
        """Write the events of the best series: of a program's own lines rather than of a bar, then of the longest."""
        found = [series for series in self._series.values() if len(series.marks) >= _MIN_MARKS]
        if not found:
            return
        best = max(found, key=lambda series: (not series.pattern.is_bar, series.seconds, len(series.marks)))
        intervals = _intervals(best.marks, self._items_per_step)
        # A program that reports its steps itself, or is observed, knows them better.
        reports = any(path.stat().st_size for path in self._directory.glob("events.*.jsonl"))
        events = [] if reports or not intervals else [*_step_events(best.pattern.name, intervals)]
        others = self._series.get((best.pattern.name, ""))
        events += _metric_events([*best.marks, *(others.metrics if others else [])])
        with (self._directory / PRINTED_FILE).open("x", encoding="utf-8") as file:
            file.writelines(json.dumps(event, allow_nan=False) + "\n" for event in events)


def _first_match(templates: Sequence[Template], line: str) -> dict[str, float] | None:
    return next((values for template in templates if (values := template.match(line)) is not None), None)


def _own_seconds(values: dict[str, float]) -> float | None:
    """Return the seconds of a step that a line itself states; None: it does not."""
    seconds = values.get("step_seconds")
    if "step_milliseconds" in values:
        seconds = values["step_milliseconds"] / 1e3
    elif values.get("steps_per_second"):
        seconds = 1 / values["steps_per_second"]
    return seconds if seconds is not None and 0 < seconds < math.inf else None


def _intervals(marks: Sequence[Mark], items_per_step: float | None) -> list[Interval]:
    """Return the steps between each two lines; where the count begins anew, such as with an epoch, there is a cut."""
    found = (
        _interval(number, before, mark, items_per_step)
        for number, (before, mark) in enumerate(itertools.pairwise(marks), start=1)
    )
    return [interval for interval in found if interval]


def _interval(number: int, before: Mark, mark: Mark, items_per_step: float | None) -> Interval | None:
    """Return the steps that end with line `number`, `mark`; None: the count began anew, or no time went by."""
    taken = _difference(before, mark, "items")
    if "step" in mark.values:
        steps = round(_difference(before, mark, "step") or 0)
    elif taken is not None:  # only samples are counted
        steps = round(taken / items_per_step) if items_per_step else 0
    else:
        steps = 1
    counts_samples = "step" not in mark.values and taken is not None and taken > 0
    own = _own_seconds(mark.values)
    seconds = own or (mark.unix_nano - before.unix_nano) / 1e9 / (steps or 1)
    if seconds <= 0 or steps < 0 or (steps == 0 and not counts_samples):
        return None
    items = mark.values.get("step_items")
    if items_per_step and steps:
        items = items_per_step
    elif items is None and (timed := own or mark.values.get("last_seconds")) and "items_per_second" in mark.values:
        items = timed * mark.values["items_per_second"]
    elif items is None and taken is not None:
        items = taken / (steps or 1)
    return Interval(
        unix_nano=mark.unix_nano,
        number=round(mark.values.get("step", number)),
        steps=steps,
        seconds=seconds,
        items=items if items is not None and 0 < items < math.inf else None,
    )


def _difference(before: Mark, mark: Mark, name: str) -> float | None:
    """Return the growth of a count between two lines; None: not both have it."""
    growth = mark.values.get(name, math.nan) - before.values.get(name, math.nan)
    return growth if math.isfinite(growth) else None


def _step_events(name: str, intervals: Sequence[Interval]) -> Iterator[dict[str, Any]]:
    """Yield the events of the steps: warm-up, then what is measured."""
    taken = 0
    split = 1
    for index, interval in enumerate(intervals):
        taken += interval.steps or _WARMUP_STEPS
        if taken >= _WARMUP_STEPS:
            split = index + 1
            break
    usual = statistics.median(interval.seconds for interval in intervals)
    first, last = intervals[0], intervals[-1]
    yield {"t": first.unix_nano, "event": "found", "name": f"pattern {name}"}
    yield {"t": first.unix_nano, "event": "phase", "name": "warmup"}
    yield from _batches("warmup", intervals[:split], usual)
    if intervals[split:]:
        yield {"t": intervals[split - 1].unix_nano, "event": "phase", "name": "measure"}
        yield from _batches("measure", intervals[split:], usual)
    yield {"t": last.unix_nano, "event": "phase", "name": "teardown"}


def _batches(phase: str, intervals: Sequence[Interval], usual: float) -> Iterator[dict[str, Any]]:
    for at in range(0, len(intervals), _STEPS_PER_EVENT):
        batch = intervals[at : at + _STEPS_PER_EVENT]
        items = [interval.items for interval in batch]
        yield {
            "t": batch[-1].unix_nano,
            "event": "steps",
            "phase": phase,
            "numbers": [interval.number for interval in batch],
            "counts": [interval.steps for interval in batch],
            "ended_unix_nano": [interval.unix_nano for interval in batch],
            "wall_seconds": [one.seconds if one.seconds <= _GAP_RATIO * usual else None for one in batch],
            **({"items": items} if any(each is not None for each in items) else {}),
        }


def _metric_events(marks: Sequence[Mark]) -> list[dict[str, Any]]:
    """Return the metrics of all lines, and the last loss and accuracy as results."""
    events: list[dict[str, Any]] = []
    last: dict[str, Mark] = {}
    for number, mark in enumerate(marks):
        step = mark.values.get("step", math.nan)
        for name, value in metrics_of(mark.values).items():
            last[name] = mark
            at = round(step) if math.isfinite(step) else number
            events.append({"t": mark.unix_nano, "event": "metric", "name": name, "step": at, "value": value})
    for name in ("loss", "accuracy"):
        if name in last:
            unit = {"unit": "%"} if name == "accuracy" else {}
            result = {"event": "result", "name": name, "value": last[name].values[name], **unit}
            events.append({"t": last[name].unix_nano, **result})
    return events
