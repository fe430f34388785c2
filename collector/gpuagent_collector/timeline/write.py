"""Writes a timeline as a Chrome trace, alone or into the traces that torch's profiler wrote."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuagent_collector.present.files import appearing
from gpuagent_collector.timeline.load import FIRST_PID, Timeline
from gpuagent_common.errors import GpuAgentError, MisuseError

# What torch's profiler writes has 1 to 100 MB unpacked; a larger file would take gigabytes of memory.
MAX_TRACE_BYTES = 1 << 30


def write_trace(timeline: Timeline, path: Path, traces: Sequence[Path] = ()) -> int:
    """Write a timeline and what the profiler's files hold, on one axis; return the number of events.

    Args:
        timeline: of the run.
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
