"""A run as a trace: phases, steps and samples on one axis, beside what a profiler recorded, for Perfetto."""

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import count
from math import isfinite
from pathlib import Path
from typing import Any

from gpuagent_collector.present.files import appearing
from gpuagent_collector.present.human import SYMBOLS
from gpuagent_collector.query.ask import Ask
from gpuagent_collector.query.named_runs import read_started_run
from gpuagent_collector.runs.data import Record
from gpuagent_collector.runs.parts import gpus_of_run, nodes_of_run, sessions_of_run
from gpuagent_collector.runs.series import TABLES
from gpuagent_collector.times import utc_now
from gpuagent_common.errors import GpuAgentError, MisuseError
from gpuagent_common.quantities import QUANTITIES

# One event of the Chrome trace format, with `at_nano` since the Unix epoch in the place of `ts`.
Event = dict[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

# Numbers of the trace's processes: above those of the kernel, so that no profiled process has one of them.
FIRST_PID = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A run's events; times are nanoseconds since the Unix epoch."""

    run_id: str
    began_nano: int
    events: Sequence[Event]


def load_timeline(ask: Ask, name: str) -> Timeline:
    """Return the timeline of the run of that name, or unique beginning of it.

    Raises MisuseError: there is no such run, or it has not started.
    """
    found = read_started_run(ask, name)
    run_id = found["run_id"]
    span = (found["started_at"], found["ended_at"] or utc_now())
    began_nano, ended_nano = map(_nano, span)
    pids = count(FIRST_PID)
    events = [
        *_name(run := next(pids), f"gpuagent: {run_id}"),
        *_phases(ask(_PHASES, [run_id, run_id]), run, ended_nano),
        *_steps(ask(_STEPS, [run_id]), run),
    ]
    hosts = nodes_of_run(ask, run_id)
    sessions = sessions_of_run(ask, run_id)
    for node_id, host in hosts.items():
        events += _name(pid := next(pids), f"gpuagent: node {host}")
        events += _counters(ask, "host_samples", node_id, sessions, span, pid)
        if len(hosts) == 1:
            events += _counters(ask, "process_samples", run_id, sessions, span, pid)
    for row in gpus_of_run(ask, run_id):
        label = f"gpuagent: GPU {row['device_index']} {row['name']}, {hosts.get(row['node_id'], '')}"
        events += _name(pid := next(pids), label)
        events += _counters(ask, "gpu_samples", row["device_id"], sessions, span, pid)
    return Timeline(run_id=run_id, began_nano=began_nano, events=events)


def _nano(time: datetime) -> int:
    return (time.replace(tzinfo=timezone.utc) - _EPOCH) // timedelta(microseconds=1) * 1000


def _name(pid: int, name: str) -> Iterator[Event]:
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
    # Above the profiled processes.
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid - 2 * FIRST_PID}}


def _phases(rows: Sequence[Record], pid: int, ended_nano: int) -> Iterator[Event]:
    yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": 1, "args": {"name": "phases"}}
    ends = [*(row["at_nano"] for row in rows[1:]), ended_nano]
    for row, end_nano in zip(rows, ends, strict=False):
        if row["name"] != "end":
            yield _slice(row["name"], "phase", row["at_nano"], end_nano, pid, 1)


def _steps(rows: Sequence[Record], pid: int) -> Iterator[Event]:
    """Yield a slice for each timed step, on a track for each rank."""
    ends: dict[int, int] = {}
    for row in rows:
        tid = 2 + row["rank"]
        if tid not in ends:
            yield {
                "ph": "M",
                "name": "thread_name",
                "pid": pid,
                "tid": tid,
                "args": {"name": f"steps, rank {row['rank']}"},
            }
        # Slices of a track must not overlap, not even by a clock's rounding.
        begin_nano = max(ends.get(tid, 0), row["at_nano"] - round(1e9 * row["seconds"]))
        ends[tid] = row["at_nano"]
        yield _slice(f"{row['phase']} {row['step']}", "step", begin_nano, row["at_nano"], pid, tid)


def _slice(name: str, category: str, begin_nano: int, end_nano: int, pid: int, tid: int) -> Event:
    dur = max(0, end_nano - begin_nano) / 1e3
    return {"ph": "X", "name": name, "cat": category, "pid": pid, "tid": tid, "at_nano": begin_nano, "dur": dur}


def _counters(
    ask: Ask, table: str, key: object, sessions: Sequence[int], span: tuple[datetime, datetime], pid: int
) -> Iterator[Event]:
    """Yield each reading of a node, GPU or run by these sessions within the span, at the time when it was read."""
    tracks = {each.column: each for each in QUANTITIES[table] if each.has_curve}
    sql = _SAMPLES.format(
        columns=", ".join(tracks),
        thinned=", ".join(f"{track}.mean" for track in tracks),
        table=table,
        rollups=table.replace("_samples", "_rollups"),
        key=TABLES[table].key,
        type=TABLES[table].type,
    )
    for row in ask(sql, [str(key), sessions, *map(str, span)]):
        for track, quantity in tracks.items():
            if row[track] is not None and isfinite(row[track]):
                # Perfetto shows a counter by its name and its value's.
                value = {SYMBOLS.get(quantity.unit, quantity.unit): row[track]}
                yield {
                    "ph": "C",
                    "name": quantity.title,
                    "pid": pid,
                    "tid": 0,
                    "at_nano": row["at_nano"],
                    "args": value,
                }


_PHASES = """
SELECT name, 1000 * epoch_us(time) AS at_nano FROM run_events
WHERE run_id = ? AND event = 'phase' AND time IS NOT NULL
    AND rank IS NOT DISTINCT FROM (SELECT min(rank) FROM run_events WHERE run_id = ? AND event = 'phase')
ORDER BY time"""

_STEPS = """
SELECT coalesce(rank, 0) AS rank, phase, step, 1000 * epoch_us(time) AS at_nano, wall_seconds AS seconds
FROM steps WHERE run_id = ? AND wall_seconds BETWEEN 0 AND 1e9 AND time IS NOT NULL ORDER BY rank, time"""

_SAMPLES = """
SELECT 1000 * epoch_us(time) AS at_nano, {columns} FROM (
    SELECT {key}, session_id, time, {columns} FROM {table}
    UNION ALL
    SELECT {key}, session_id, time, {thinned} FROM {rollups}
)
WHERE {key} = CAST(? AS {type}) AND session_id IN (SELECT unnest(CAST(? AS BIGINT[])))
    AND time BETWEEN CAST(? AS TIMESTAMP) AND CAST(? AS TIMESTAMP) ORDER BY time"""


# What torch's profiler writes has 1 to 100 MB unpacked; a larger file would take gigabytes of memory.
MAX_TRACE_BYTES = 1 << 30


def write_trace(timeline: Timeline, path: Path, traces: Sequence[Path] = ()) -> int:
    """Write a timeline and what the profiler's files hold, on one axis; return the number of events.

    Args:
        path: file to write, gzipped if it ends in .gz.
        traces: of ranks of the same run, from torch's profiler.

    Raises:
        MisuseError: a file is no trace of torch's profiler.
        GpuAgentError: a file cannot be read or written.
    """
    # Of the first trace, for the properties beside its events. Times are relative, since a float of 64 bits holds
    # microseconds since 1970 to a quarter of one.
    merged: dict[str, Any] = {"displayTimeUnit": "ms"}
    base_nano = timeline.began_nano
    events: list[dict[str, Any]] = []
    for number, file in enumerate(traces):
        trace = read_trace(file)
        own_base_nano = int(trace.get("baseTimeNanoseconds", 0))
        if number == 0:
            merged, base_nano = trace, own_base_nano
        shift = (own_base_nano - base_nano) / 1e3
        events += [_moved(event, shift, number) for event in trace["traceEvents"]]
    for event in timeline.events:
        at_nano = event.get("at_nano")
        timed = {} if at_nano is None else {"ts": (at_nano - base_nano) / 1e3}
        events.append({**{name: value for name, value in event.items() if name != "at_nano"}, **timed})
    merged |= {"baseTimeNanoseconds": base_nano, "traceEvents": events}
    text = json.dumps(merged, allow_nan=False).encode()
    with appearing(path) as unfinished:
        unfinished.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return len(events)


def read_trace(path: Path) -> dict[str, Any]:
    """Return the trace in a file that torch's profiler wrote, gzipped or not.

    Raises:
        MisuseError: it is no such trace, or too large.
        GpuAgentError: it cannot be read.
    """
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(MAX_TRACE_BYTES + 1)
        if len(content) > MAX_TRACE_BYTES:
            raise MisuseError(f"{path} has more than the {MAX_TRACE_BYTES} bytes accepted of a trace")
        trace: dict[str, Any] = json.loads(content)
        if all(isinstance(event, dict) for event in trace["traceEvents"]):
            return trace
    except (gzip.BadGzipFile, EOFError, ValueError, TypeError, LookupError) as error:
        raise MisuseError(f"{path} is no trace of torch's profiler: {type(error).__name__}") from error
    except OSError as error:
        raise GpuAgentError(f"cannot read {path}: {error.strerror}") from error
    raise MisuseError(f"{path} is no trace of torch's profiler: an event is no object")


def _moved(event: dict[str, Any], shift: float, number: int) -> dict[str, Any]:
    """Return an event of the trace of that number on the first one's axis, apart from those of other traces."""
    moved = dict(event)
    if isinstance(event.get("ts"), int | float):
        moved["ts"] = event["ts"] + shift
    for name in ("pid", "id") if number else ():
        if isinstance(event.get(name), int):
            moved[name] = event[name] + number * FIRST_PID * 10
        elif isinstance(event.get(name), str):
            moved[name] = f"{event[name]} {number}"
    return moved
