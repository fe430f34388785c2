"""The steps that a program prints, found in its output while it runs and reported at its end."""

import contextlib
import itertools
import json
import math
import re
import statistics
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuagent.environments.support.common import read_run_file
from gpuagent.runs.output import STREAMS
from gpuagent_common.patterns import MAX_LINE_CHARACTERS, Pattern, Template, metrics_of

# The events that are made of the output, read like those of a rank.
PRINTED_FILE = "printed.jsonl"

# A short program prints all of its steps within one of the longer pauses, so the first ones are shorter.
_POLL_SECONDS, _FIRST_POLL_SECONDS = 0.25, 0.01
_POLLS_GROW = 1.02
# While the program runs, it shall not lose more of a core to the reader. What is left then is read after its end.
_MOST_OF_A_CORE = 0.1
# Limit of one read. A program that prints more is read in parts.
_PIECE_BYTES = 256 * 1024
# Beyond this every second one is dropped: a week of lines stays small. They are of steps, whose number is counted.
_MAX_MARKS = 8192
# Likewise of lines with metrics, whose dropping is reported.
MAX_LINES = 32_768

# Fewer lines may be chance.
_MIN_MARKS = 3
# As for programs that report their steps: the first ones compile and fill caches.
_WARMUP_STEPS = 5
# A longer interval holds a validation, a checkpoint or an outage besides its steps.
_GAP_RATIO = 3.0
_STEPS_PER_EVENT = 400
# The kernel's time of a write is to 4 ms: over so long an interval that is 1 %.
_LEAST_TIMED_SECONDS = 0.4

_ESCAPES = re.compile(rb"\x1b\[[0-9;?]{0,20}[A-Za-z]|\x08")
_LINE_ENDS = re.compile(rb"[\r\n]")


@dataclass(frozen=True, slots=True)
class Mark:
    """A matched line: its time, its numbers, and how many lines like it came before."""

    unix_nano: int
    values: dict[str, float]
    before: int

    @property
    def step(self) -> int:
        """The number of its step: the printed one, or that of the line."""
        step = self.values.get("step", math.nan)
        return round(step) if math.isfinite(step) else self.before


@dataclass(slots=True)
class MetricLines:
    """The lines of one kind that have metrics: all up to a bound; beyond it every second, fourth, … of them.

    Steps count on where a program counts from 0 again, such as in each epoch. A smaller fall is no new count: ranks
    print side by side.
    """

    # Each kept line with its step.
    kept: list[tuple[int, Mark]] = field(default_factory=list)
    every: int = 1
    number: int = 0
    # The last line with each metric.
    last: dict[str, Mark] = field(default_factory=dict)
    _steps_before: int = 0
    _previous: int = 0

    def add(self, mark: Mark) -> None:
        """Add a line, if it has metrics."""
        metrics = metrics_of(mark.values)
        if not metrics:
            return
        if mark.step < self._previous and (mark.step <= 1 or 2 * mark.step <= self._previous):
            total = mark.values.get("total", math.nan)
            self._steps_before += round(total) if math.isfinite(total) else self._previous + 1
            self._previous = mark.step
        self._previous = max(self._previous, mark.step)
        self.last.update(dict.fromkeys(metrics, mark))
        if self.number % self.every == 0:
            self.kept.append((self._steps_before + mark.step, mark))
        self.number += 1
        if len(self.kept) > MAX_LINES:
            del self.kept[1::2]
            self.every *= 2

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events of the metrics, and one that says how many lines were dropped, if any were."""
        for step, mark in self.kept:
            for name, value in metrics_of(mark.values).items():
                yield {"t": mark.unix_nano, "event": "metric", "name": name, "step": step, "value": value}
        if self.every > 1:
            counts = {"every": self.every, "lines": self.number, "kept": len(self.kept), "metrics": sorted(self.last)}
            yield {"t": self.kept[-1][1].unix_nano, "event": "thinned", "name": "metrics", **counts}


@dataclass(slots=True)
class Series:
    """The lines of one pattern that belong together: one bar of several, or all."""

    pattern: Pattern
    # For the steps' times.
    marks: list[Mark] = field(default_factory=list)
    # Number of its lines of progress.
    lines: int = 0
    # Metrics in lines of progress, and in others.
    metrics: MetricLines = field(default_factory=MetricLines)
    others: MetricLines = field(default_factory=MetricLines)

    def add(self, unix_nano: int, values: dict[str, float]) -> None:
        """Add a line of progress. Of those that were read together and state no time the last one's is known."""
        mark = Mark(unix_nano, values, self.lines)
        self.lines += 1
        self.metrics.add(mark)
        if self.marks and self.marks[-1].unix_nano == unix_nano and not _own_seconds(values):
            self.marks.pop()
        self.marks.append(mark)
        if len(self.marks) > _MAX_MARKS:
            del self.marks[1::2]

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
        is_stated: whether the program states the time; else it is that between two lines.
    """

    unix_nano: int
    number: int
    steps: int
    seconds: float
    items: float | None
    is_stated: bool


@dataclass(slots=True)
class _Stream:
    """A file that a program prints into.

    The kernel's time of the last write is better than that of reading, which may be late, so each look keeps it.
    """

    path: Path
    offset_bytes: int = 0
    # The file's size and the time of its last write, at each look whose lines have not all been read.
    looks: deque[tuple[int, int]] = field(default_factory=deque)

    def look(self) -> None:
        """Note how much there is, and since when."""
        with contextlib.suppress(OSError):
            found = self.path.lstat()
            if found.st_size > (self.looks[-1][0] if self.looks else self.offset_bytes):
                self.looks.append((found.st_size, found.st_mtime_ns))

    def read_piece(self) -> tuple[bytes, int] | None:
        """Read whole lines that were printed before one look, and its time; None: there are no further ones."""
        while self.looks:
            size_bytes, written_unix_nano = self.looks[0]
            data = read_run_file(self.path, self.offset_bytes, min(size_bytes - self.offset_bytes, _PIECE_BYTES))
            complete = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
            if not complete and len(data) == _PIECE_BYTES:
                complete = len(data)
            if complete:
                self.offset_bytes += complete
                return data[:complete], written_unix_nano
            self.looks.popleft()
        return None


class PrintedSteps:
    """A reader of a run's output. `run` needs a thread of its own and returns once the run has ended."""

    def __init__(self, directory: Path, patterns: Sequence[Pattern], items_per_step: float | None) -> None:
        self._directory = directory
        self._patterns = patterns
        self._items_per_step = items_per_step
        self._streams = [_Stream(directory / stream) for stream in STREAMS]
        self._series: dict[tuple[str, str], Series] = {}
        # Only lines with one of these texts can match; most output has none, and is passed over without a look at it.
        templates = [template for pattern in patterns for template in (*pattern.steps, *pattern.metrics)]
        self._signs = re.compile(b"|".join(re.escape(template.sign.encode()) for template in templates))

    def run(self, ended: threading.Event) -> None:
        """Read until the run has ended, then write the events of what was found."""
        poll_seconds = pause_seconds = _FIRST_POLL_SECONDS
        while not ended.wait(pause_seconds):
            taken_seconds = self.read(_MOST_OF_A_CORE * _POLL_SECONDS)
            poll_seconds = min(_POLLS_GROW * poll_seconds, _POLL_SECONDS)
            pause_seconds = max(poll_seconds, taken_seconds / _MOST_OF_A_CORE)
        self.read()
        self.finish()

    def read(self, most_seconds: float = math.inf) -> float:
        """Read what was printed since; return the CPU time that it took, which is little more than `most_seconds`."""
        began = time.thread_time()
        for stream in self._streams:
            stream.look()
        for stream in self._streams:
            while time.thread_time() - began < most_seconds and (piece := stream.read_piece()):
                for line in self._find_lines(piece[0]):
                    self._take(line, piece[1])
        return time.thread_time() - began

    def _find_lines(self, data: bytes) -> Iterator[str]:
        if b"\x1b" in data or b"\b" in data:
            data = _ESCAPES.sub(b"", data)
        at = 0
        while at < len(data) and (sign := self._signs.search(data, at)):
            start = max(data.rfind(b"\n", at, sign.start()), data.rfind(b"\r", at, sign.start()), at - 1) + 1
            end = _LINE_ENDS.search(data, sign.end())
            at = end.end() if end else len(data)
            line = data[start : end.start() if end else at]
            if line:
                yield line[: 4 * MAX_LINE_CHARACTERS].decode("utf-8", "replace")[:MAX_LINE_CHARACTERS]

    def _take(self, line: str, unix_nano: int) -> None:
        for pattern in self._patterns:
            if (values := _first_match(pattern.steps, line)) is not None and math.isfinite(values.get("step", 0.0)):
                # Bars of one description and one total are one work, such as the epochs of a training.
                kind = f"{re.sub('[0-9]+', '', line.partition('%')[0])}/{values.get('total')}" if pattern.is_bar else ""
                self._one(pattern, kind).add(unix_nano, values)
            elif (values := _first_match(pattern.metrics, line)) is not None:
                others = self._one(pattern, "").others
                others.add(Mark(unix_nano, values, others.number))

    def _one(self, pattern: Pattern, kind: str) -> Series:
        return self._series.setdefault((pattern.name, kind), Series(pattern))

    def finish(self) -> None:
        """Write the events of the best series: one with times, of the lowest rank, and then the longest."""
        found = [series for series in self._series.values() if series.lines + series.others.number >= _MIN_MARKS]
        if not found:
            return
        best = max(
            found,
            key=lambda one: (len(one.marks) >= _MIN_MARKS, -one.pattern.rank, one.seconds, len(one.marks)),
        )
        # Of lines that were all written at once, only the metrics are known. Where the count begins anew, such as
        # with an epoch, there is a cut.
        marks = _to_milliseconds(best.marks) if len(best.marks) >= _MIN_MARKS else []
        pairs = itertools.pairwise(_with_step_items(marks))
        intervals = [step for pair in pairs if (step := _interval(*pair, self._items_per_step))]
        # A program that reports its steps itself, or is observed, knows them better.
        reports = any(path.stat().st_size for path in self._directory.glob("events.*.jsonl"))
        # With them, the same run can be asked for again.
        asked = {"pattern": best.pattern.asked, "items_per_step": self._items_per_step}
        events = [] if reports or not intervals else [*_step_events(best.pattern.name, intervals, asked)]
        others = self._one(best.pattern, "").others
        events += [*best.metrics.events(), *others.events()]
        last = best.metrics.last | others.last
        for name, unit in (("loss", {}), ("accuracy", {"unit": "%"})):
            if mark := last.get(name):
                result = {"event": "result", "name": name, "value": mark.values[name], **unit}
                events.append({"t": mark.unix_nano, **result})
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


def _to_milliseconds(marks: Sequence[Mark]) -> Sequence[Mark]:
    """Return lines whose times are whole milliseconds after the first one's.

    The kernel knows them to 4 ms. What remains is noise, which would put equal runs into an order.
    """
    first = marks[0].unix_nano
    return [replace(mark, unix_nano=first + round(mark.unix_nano - first, -6)) for mark in marks]


def _with_step_items(marks: Sequence[Mark]) -> Sequence[Mark]:
    """Return the lines of steps; items that do not grow from line to line are those of each step."""
    grown = [_difference(*pair, "items") for pair in itertools.pairwise(marks)]
    known = [growth for growth in grown if growth is not None]
    if not known or statistics.median(known) > 0 or any("step" not in mark.values for mark in marks):
        return marks
    return [replace(mark, values={"step_items": mark.values.get("items", math.nan), **mark.values}) for mark in marks]


def _interval(before: Mark, mark: Mark, items_per_step: float | None) -> Interval | None:
    """Return the steps that end with the line `mark`; None: the count began anew, or no time went by."""
    taken = _difference(before, mark, "items")
    if "step" in mark.values:
        steps = round(_difference(before, mark, "step") or 0)
    elif taken is not None:  # only samples are counted
        steps = round(taken / items_per_step) if items_per_step else 0
    else:
        steps = mark.before - before.before  # one a line
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
    elif items is None and "items_per_second" in mark.values:
        items = seconds * mark.values["items_per_second"]
    return Interval(
        unix_nano=mark.unix_nano,
        number=mark.step,
        steps=steps,
        seconds=seconds,
        items=items if items is not None and 0 < items < math.inf else None,
        is_stated=own is not None,
    )


def _difference(before: Mark, mark: Mark, name: str) -> float | None:
    growth = mark.values.get(name, math.nan) - before.values.get(name, math.nan)
    return growth if math.isfinite(growth) else None


def _step_events(name: str, intervals: Sequence[Interval], asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    taken = 0
    split = 1
    for index, interval in enumerate(intervals):
        taken += interval.steps or _WARMUP_STEPS
        if taken >= _WARMUP_STEPS:
            # Of few steps some are left to measure.
            split = max(1, min(index + 1, len(intervals) // 2))
            break
    usual = statistics.median(interval.seconds for interval in intervals)
    first, last = intervals[0], intervals[-1]
    yield {"t": first.unix_nano, "event": "found", "name": f"pattern {name}", **asked}
    yield {"t": first.unix_nano, "event": "phase", "name": "warmup"}
    yield from _batches("warmup", intervals[:split], usual)
    if intervals[split:]:
        yield {"t": intervals[split - 1].unix_nano, "event": "phase", "name": "measure"}
        yield from _batches("measure", intervals[split:], usual)
    yield {"t": last.unix_nano, "event": "phase", "name": "teardown"}


def _batches(phase: str, intervals: Sequence[Interval], usual: float) -> Iterator[dict[str, Any]]:
    seconds = _even_out(intervals, usual)
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
            "wall_seconds": seconds[at : at + _STEPS_PER_EVENT],
            **({"items": items} if any(each is not None for each in items) else {}),
        }


def _even_out(intervals: Sequence[Interval], usual: float) -> list[float | None]:
    """Return the seconds of each interval's steps; None: it is a gap.

    Those that the program does not state are means over intervals in succession that are long enough together.
    """
    least = 0.0 if any(one.is_stated for one in intervals) else _LEAST_TIMED_SECONDS
    seconds: list[float | None] = [None] * len(intervals)
    timed = [index for index, one in enumerate(intervals) if one.seconds <= _GAP_RATIO * usual]
    groups: list[list[int]] = [[]]
    taken = 0.0
    for index in timed:
        if groups[-1] and taken >= least:
            groups.append([])
            taken = 0.0
        groups[-1].append(index)
        taken += intervals[index].seconds * (intervals[index].steps or 1)
    if groups[1:] and taken < least:
        rest = groups.pop()
        groups[-1] += rest
    for group in groups:
        # One whose number of steps is unknown counts as one.
        steps = [intervals[index].steps or 1 for index in group]
        total = sum(intervals[index].seconds * number for index, number in zip(group, steps, strict=True))
        for index in group:
            seconds[index] = total / sum(steps)
    return seconds
