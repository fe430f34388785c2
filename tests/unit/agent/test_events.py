import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuagent.runs.events import MAX_LINE_BYTES, Digest, EventTailer, MalformedEventError, event_row, parse_event
from gpuagent_common.keys import key

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
HOSTILE_EVENTS = st.fixed_dictionaries(
    {
        "t": JSON | st.integers(0, 2**62),
        "event": JSON | st.sampled_from(["step", "result", "phase", "op", "device", "metric"]),
    },
    optional=dict.fromkeys(
        ("name", "value", "unit", "phase", "step", "wall_seconds", "items", "uuid", "pid", "kind", "calls"), JSON
    ),
)


def line(**event: object) -> bytes:
    return json.dumps({"t": 1_000, **event}).encode() + b"\n"


def rows(tailer: EventTailer) -> list[tuple[str, dict[str, object]]]:
    return [(parsed.table, dict(parsed.row)) for parsed in tailer.read_new()]


@pytest.mark.parametrize(
    ("event", "table", "row"),
    [
        ({"event": "phase", "name": "measure"}, "run_events", {"event": "phase", "name": "measure"}),
        (
            {"event": "step", "phase": "measure", "step": 0, "wall_seconds": 0.5, "items": 64},
            "steps",
            {"phase": "measure", "step": 0, "wall_seconds": 0.5, "items": 64.0},
        ),
        (
            {"event": "result", "phase": "measure", "name": "throughput", "value": 128, "unit": "items/s"},
            "results",
            {"phase": "measure", "name": "throughput", "value": 128.0, "unit": "items/s"},
        ),
        (
            {"event": "result", "name": "data_source", "value": "synthetic"},
            "results",
            {"name": "data_source", "value_text": "synthetic"},
        ),
        (
            {"event": "op", "kind": "kernel", "name": "gemm", "calls": 6, "steps": 3, "gpu_seconds": 0.25},
            "op_times",
            {"kind": "kernel", "name": "gemm", "calls": 6, "steps": 3, "gpu_seconds": 0.25},
        ),
        (
            {"event": "device", "uuid": "GPU-1", "pid": 7},
            "run_devices",
            {"device_id": key("GPU-1"), "pid": 7, "found_by": "workload"},
        ),
        (
            {"event": "metric", "name": "loss", "step": 3, "value": 0.25},
            "run_events",
            {"event": "metric", "name": "loss", "detail": '{"step": 3, "value": 0.25}'},
        ),
    ],
)
def test_each_kind_of_event_becomes_a_row_of_its_table(
    tmp_path: Path, event: dict[str, object], table: str, row: dict[str, object]
) -> None:
    (tmp_path / "events.3.0.jsonl").write_bytes(line(**event))
    ((found, columns),) = rows(EventTailer("r", tmp_path))
    assert found == table
    present = {name: value for name, value in columns.items() if value is not None}
    assert present == {"time": 1_000, "run_id": "r", "rank": 3, **row}


def test_a_line_is_read_when_it_is_complete_and_only_once(tmp_path: Path) -> None:
    file = tmp_path / "events.0.0.jsonl"
    whole = line(event="phase", name="setup")
    file.write_bytes(whole + whole[:10])
    tailer = EventTailer("r", tmp_path)
    assert len(rows(tailer)) == 1
    assert rows(tailer) == []
    file.write_bytes(whole + whole)
    assert len(rows(tailer)) == 1
    assert tailer.offsets == {file.name: 2 * len(whole)}


def test_a_restarted_agent_continues_at_its_offsets(tmp_path: Path) -> None:
    file = tmp_path / "events.0.0.jsonl"
    file.write_bytes(line(event="phase", name="setup"))
    first = EventTailer("r", tmp_path)
    rows(first)
    file.write_bytes(file.read_bytes() + line(event="phase", name="measure"))
    second = EventTailer("r", tmp_path, first.offsets)
    assert [row["name"] for _, row in rows(second)] == ["measure"]


def test_the_digest_has_phase_and_results(tmp_path: Path) -> None:
    (tmp_path / "events.0.0.jsonl").write_bytes(
        line(event="phase", name="measure") + line(event="result", name="loss", value=0.5)
    )
    digest = EventTailer("r", tmp_path).read_all()
    assert (digest.phase, digest.results) == ("measure", {"loss": 0.5})


def test_malformed_lines_are_counted_and_the_first_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "events.0.0.jsonl").write_bytes(
        b"password=hunter2\n" + b"nonsense\n" * 2 + line(event="phase", name="setup")
    )
    tailer = EventTailer("r", tmp_path)
    assert EventTailer("r", tmp_path).digest.complaint is None
    (_, malformed), (_, phase) = rows(tailer)
    assert (malformed["event"], phase["event"], tailer.digest.malformed) == ("malformed", "phase", 3)
    assert "hunter2" not in str(malformed["detail"])
    assert str(tailer.digest.complaint).startswith("3 lines of events not understood (first: not JSON: Expecting value")


def test_files_of_other_names_are_not_events(tmp_path: Path) -> None:
    for name in ("events.jsonl", "events.a.0.jsonl", "events.0.0.jsonl.tmp", "events.-1.0.jsonl"):
        (tmp_path / name).write_bytes(line(event="phase", name="setup"))
    assert rows(EventTailer("r", tmp_path)) == []


def test_pipes_and_links_are_not_read_as_events_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "events.0.0.jsonl")
    (tmp_path / "secret").write_bytes(line(event="phase", name="setup"))
    (tmp_path / "events.1.0.jsonl").symlink_to(tmp_path / "secret")
    (tmp_path / "events.2.0.jsonl").mkdir()
    assert rows(EventTailer("r", tmp_path)) == []


def test_a_line_without_end_is_skipped(tmp_path: Path) -> None:
    file = tmp_path / "events.0.0.jsonl"
    file.write_bytes(b"x" * (MAX_LINE_BYTES + 1))
    tailer = EventTailer("r", tmp_path)
    assert [row["event"] for _, row in rows(tailer)] == ["malformed"]
    assert tailer.offsets == {file.name: MAX_LINE_BYTES + 1}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'"text"',
        b'{"event": "phase"}',
        b'{"t": 1.5, "event": "phase"}',
        b'{"t": true, "event": "phase"}',
        b'{"t": 1, "event": 5}',
        b'{"t": 99999999999999999999, "event": "phase"}',
        b'{"t": 1, "event": "result", "value": NaN}',
        b'{"t": 1, "event": "metric", "value": 1e999}',
        b'{"t": 1, "event": "metric", "note": "\\ud83d"}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_a_malformed_line_is_rejected(text: bytes) -> None:
    with pytest.raises(MalformedEventError):
        parse_event(text)


@pytest.mark.parametrize(
    "event",
    [
        {"event": "phase"},
        {"event": "step", "phase": "measure"},
        {"event": "step", "step": "1"},
        {"event": "result", "name": "loss"},
        {"event": "result", "value": 1},
        {"event": "result", "name": "loss", "value": [1]},
        {"event": "op", "name": "gemm", "calls": 6, "steps": 3},
        {"event": "op", "kind": "kernel", "name": "gemm", "calls": 0.5, "steps": 3},
        {"event": "device", "uuid": 5},
    ],
)
def test_an_event_without_its_required_fields_is_rejected(event: dict[str, object]) -> None:
    with pytest.raises(MalformedEventError):
        event_row({"t": 1, **event}, "r", 0)


@given(
    st.binary()
    | JSON.map(lambda value: json.dumps(value).encode())
    | HOSTILE_EVENTS.map(lambda e: json.dumps(e).encode())
)
def test_a_hostile_line_gives_a_row_or_is_rejected(text: bytes) -> None:
    try:
        parsed = event_row(parse_event(text), "r", 0)
    except MalformedEventError:
        return
    assert all(value is None or isinstance(value, int | float | str) for value in parsed.row.values())


def digested(directory: Path) -> Digest:
    return EventTailer("r", directory).read_all()


def test_throughput_is_summed_over_ranks_and_other_results_are_of_the_first(
    tmp_path: Path,
) -> None:
    for rank in (0, 1, 10):
        (tmp_path / f"events.{rank}.0.jsonl").write_bytes(
            line(event="result", name="throughput", value=100.5 + rank, unit="items/s", phase="measure")
            + line(event="result", name="loss", value=rank, phase="measure")
            + line(event="result", name="device", value=f"GPU {rank}")
        )
    assert digested(tmp_path).results == {"throughput": 312.5, "loss": 0, "device": "GPU 0"}


def test_results_after_a_restart_supersede_those_before(tmp_path: Path) -> None:
    for restart in (0, 2, 10):
        (tmp_path / f"events.0.{restart}.jsonl").write_bytes(
            line(event="result", name="throughput", value=restart) + line(event="result", name="loss", value=restart)
        )
    assert digested(tmp_path).results == {"throughput": 10, "loss": 10}


def test_a_result_of_one_rank_alone_is_a_result_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "events.0.0.jsonl").write_bytes(line(event="result", name="throughput", value=5))
    (tmp_path / "events.1.0.jsonl").write_bytes(line(event="result", name="throughput", value="none"))
    (tmp_path / "events.2.0.jsonl").write_bytes(line(event="result", name="late", value=1))
    assert digested(tmp_path).results == {"throughput": 5, "late": 1}
