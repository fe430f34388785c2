"""A run as a trace: its samples as counters, on one axis with the kernels that a profiler recorded."""

import gzip
import json
from collections import defaultdict
from datetime import timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gpuagent_collector.timeline import FIRST_PID, load_timeline, write_trace
from gpuagent_common.errors import GpuAgentError, MisuseError
from tests.integration.compare.synthetic import SyntheticStore


@pytest.fixture
def recorded(store: SyntheticStore) -> SyntheticStore:
    """A run on a node with two GPUs, of which it uses one, and its samples."""
    node = store.node("spruce", "lab", gpus=["NVIDIA H200"] * 2)
    store.run("run-1", node, start_seconds=0, gpus=node.gpus[:1])
    return store


def write(store: SyntheticStore, path: Path, *traces: Path) -> dict[str, Any]:
    write_trace(load_timeline(store.ask, "run-1"), path, traces)
    content = path.read_bytes()
    trace: dict[str, Any] = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    return trace


def assert_loads(trace: dict[str, Any]) -> None:
    """Check the rules by which Perfetto reads this format; it drops events that break them, and counts that alone."""
    slices: dict[tuple[Any, Any], list[tuple[float, float]]] = defaultdict(list)
    readings: dict[tuple[Any, str], list[float]] = defaultdict(list)
    named = {(event["pid"], event["tid"]) for event in trace["traceEvents"] if event["name"] == "thread_name"}
    for event in trace["traceEvents"]:
        if event["ph"] != "M":
            assert event["ts"] >= 0, event
        if event["ph"] == "X":
            assert event["dur"] >= 0, event
            slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values()), event
            readings[event["pid"], event["name"]].append(event["ts"])
    # A counter has one value at a time, and slices of a thread follow or enclose one another.
    assert all(len(set(times)) == len(times) for times in readings.values())
    for thread, spans in slices.items():
        is_ours = isinstance(thread[0], int) and FIRST_PID <= thread[0] < 10 * FIRST_PID
        assert thread in named or not is_ours
        around: list[float] = []
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while around and around[-1] <= begin + 5e-4:  # half a nanosecond
                around.pop()
            assert not around or end <= around[-1] + 5e-4, thread
            around.append(end)


def unix_seconds(trace: dict[str, Any], event: dict[str, Any]) -> float:
    """When an event happened, by the trace's own base."""
    return float(trace["baseTimeNanoseconds"] / 1e9 + event["ts"] / 1e6)


def test_samples_are_counters_and_steps_and_phases_are_slices(recorded: SyntheticStore, tmp_path: Path) -> None:
    trace = write(recorded, tmp_path / "run.json.gz")
    assert_loads(trace)
    events = trace["traceEvents"]
    # As Perfetto demands: a kind, a process, a thread, a time in microseconds, and numbers as values of counters.
    assert {event["ph"] for event in events} == {"M", "X", "C"}
    assert all(isinstance(event["pid"], int) and isinstance(event["tid"], int) for event in events)
    assert all(isinstance(event["ts"], float) for event in events if event["ph"] != "M")
    counters = [event for event in events if event["ph"] == "C"]
    assert all(isinstance(value, int | float) for event in counters for value in event["args"].values())
    titles = {(event["name"], *event["args"]) for event in counters}
    assert {("GPU utilisation", "%"), ("Power, each GPU", "W"), ("GPU memory", "bytes"), ("Node CPU", "%")} <= titles
    named = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert len([name for name in named if "GPU" in name]) == 1
    stored = recorded.ask(
        "SELECT epoch_us(time) / 1e6 AS seconds, utilization_percent FROM gpu_samples "
        "WHERE device_id IN (SELECT device_id FROM run_devices) ORDER BY time"
    )
    drawn = [event for event in counters if event["name"] == "GPU utilisation"]
    assert [event["args"]["%"] for event in drawn] == [row["utilization_percent"] for row in stored]
    assert [unix_seconds(trace, event) for event in drawn] == pytest.approx(
        [row["seconds"] for row in stored], abs=1e-6
    )
    slices = [event["name"] for event in events if event["ph"] == "X"]
    assert slices[:2] == ["setup", "warmup"]
    assert slices[-1] == "measure 9"


def test_steps_end_when_the_store_says_and_never_overlap(recorded: SyntheticStore, tmp_path: Path) -> None:
    trace = write(recorded, tmp_path / "run.json")
    steps = [event for event in trace["traceEvents"] if event.get("cat") == "step"]
    ends = [row["seconds"] for row in recorded.ask("SELECT epoch_us(time) / 1e6 AS seconds FROM steps ORDER BY time")]
    assert [unix_seconds(trace, step) + step["dur"] / 1e6 for step in steps] == pytest.approx(ends, abs=1e-6)
    assert all(one["ts"] + one["dur"] <= other["ts"] for one, other in pairwise(steps))


def profiled(path: Path, base_nano: int, pid: int) -> Path:
    """A trace as torch's profiler writes it: one kernel, 5 s after its base."""
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": pid, "tid": 7, "ts": 5_000_000.25, "dur": 8.5}
    span = {"ph": "X", "cat": "Trace", "name": "Profiler", "pid": "Spans", "tid": "Profiler", "ts": 4e6, "dur": 3e6}
    arrow = {"ph": "s", "name": "ac2g", "id": 3, "pid": pid, "tid": 7, "ts": 5_000_000.25}
    trace = {"schemaVersion": 1, "baseTimeNanoseconds": base_nano, "traceEvents": [kernel, span, arrow]}
    with gzip.open(path, "wt") as file:
        json.dump(trace, file)
    return path


def test_profiled_kernels_keep_their_times_and_ranks_stay_apart(recorded: SyntheticStore, tmp_path: Path) -> None:
    started = recorded.ask("SELECT started_at FROM runs")[0]["started_at"].replace(tzinfo=timezone.utc)
    base_nano = int(started.timestamp()) * 1_000_000_000
    first = profiled(tmp_path / "rank0.1.pt.trace.json.gz", base_nano, 0)
    second = profiled(tmp_path / "rank1.1.pt.trace.json.gz", base_nano + 2_000_000_000, 0)
    trace = write(recorded, tmp_path / "both.json", first, second)
    kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    assert trace["schemaVersion"] == 1
    assert kernels[0]["ts"] == 5_000_000.25
    assert [unix_seconds(trace, kernel) - base_nano / 1e9 for kernel in kernels] == pytest.approx([5, 7], abs=1e-5)
    assert kernels[0]["pid"] == 0
    assert kernels[1]["pid"] > FIRST_PID
    assert len({event["id"] for event in trace["traceEvents"] if event["ph"] == "s"}) == 2
    assert {event["pid"] for event in trace["traceEvents"] if event["name"] == "Profiler"} == {"Spans", "Spans 1"}
    assert_loads(trace)
    # The run began at the trace's base, and so did its first sample.
    counters = [event["ts"] for event in trace["traceEvents"] if event["ph"] == "C"]
    assert min(counters) == 0


def test_a_run_without_gpus_or_samples_has_what_there_is(store: SyntheticStore, tmp_path: Path) -> None:
    store.run("run-1", store.node("spruce", "lab"), start_seconds=0, throughput=None)
    for table in ("host_samples", "process_samples"):
        store.rows[table].clear()
    assert {event["ph"] for event in write(store, tmp_path / "run.json")["traceEvents"]} == {"M", "X"}


@pytest.mark.parametrize("content", [b"no JSON", b"{}", b'{"traceEvents": [1]}', b"[]", b"\x1f\x8bcut"])
def test_a_file_that_is_no_trace_is_refused(recorded: SyntheticStore, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other.json.gz").write_bytes(content)
    with pytest.raises(MisuseError, match="torch's profiler"):
        write(recorded, tmp_path / "run.json", tmp_path / "other.json.gz")


def test_what_cannot_be_found_or_written_is_named(recorded: SyntheticStore, tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="run-7 is not"):
        load_timeline(recorded.ask, "run-7")
    with pytest.raises(GpuAgentError, match="cannot read"):
        write(recorded, tmp_path / "run.json", tmp_path / "missing.json")
    with pytest.raises(GpuAgentError, match="cannot write"):
        write(recorded, tmp_path / "missing" / "run.json")


def test_another_machine_with_the_nodes_identity_is_in_no_counter(store: SyntheticStore, tmp_path: Path) -> None:
    node = store.node("spruce", "lab", boot_id="boot-1")
    store.run("run-1", node, start_seconds=0)
    clone = store.beside(node, hostname="fir", boot_id="boot-2")
    store.rows["host_samples"] += [{**clone.at(second / 4), "cpu_percent": 7777.0} for second in range(40)]
    events = write(store, tmp_path / "run.json")["traceEvents"]
    assert not [event for event in events if event["ph"] == "C" and event["args"].get("%") == 7777.0]
    assert [event for event in events if event["ph"] == "C" and event["name"] == "Node CPU"]
    assert not [event for event in events if "fir" in str(event.get("args"))]
