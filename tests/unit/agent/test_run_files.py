import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuagent.redaction import redact_arguments, redact_text
from gpuagent.runs.events import MAX_LINE_BYTES, EventTailer, MalformedEventError, event_row, parse_event
from gpuagent.runs.output import PIECE_BYTES, TAIL_BYTES, read_piece
from gpuagent_common.keys import key


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


def test_malformed_lines_are_counted_and_the_first_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "events.0.0.jsonl").write_bytes(
        b"password=hunter2\n" + b"nonsense\n" * 2 + line(event="phase", name="setup")
    )
    tailer = EventTailer("r", tmp_path)
    assert EventTailer("r", tmp_path).digest.complaint is None
    (_, malformed), (_, phase) = rows(tailer)
    assert (malformed["event"], phase["event"], tailer.digest.malformed) == ("malformed", "phase", 3)
    assert "hunter2" not in str(malformed["detail"])
    assert str(tailer.digest.complaint).startswith("3 lines of events")


def test_files_of_other_names_pipes_and_links_are_not_read(tmp_path: Path) -> None:
    for name in ("events.jsonl", "events.a.0.jsonl", "events.0.0.jsonl.tmp", "events.-1.0.jsonl", "secret"):
        (tmp_path / name).write_bytes(line(event="phase", name="setup"))
    os.mkfifo(tmp_path / "events.0.0.jsonl")
    (tmp_path / "events.1.0.jsonl").symlink_to(tmp_path / "secret")
    (tmp_path / "events.2.0.jsonl").mkdir()
    assert rows(EventTailer("r", tmp_path)) == []
    (tmp_path / "stdout").symlink_to(tmp_path / "secret")
    for name in ("stdout", "events.0.0.jsonl"):
        assert read_piece(tmp_path / name, 0, has_ended=True).text == ""


def test_a_file_whose_name_is_almost_right_is_named_to_its_writer(tmp_path: Path) -> None:
    assert EventTailer("run", tmp_path).read_all().complaint is None
    (tmp_path / "events.0.jsonl").write_text("{}\n")
    complaint = EventTailer("run", tmp_path).read_all().complaint
    assert "events.RANK.RESTART.jsonl" in str(complaint)


def test_a_line_without_end_is_skipped(tmp_path: Path) -> None:
    file = tmp_path / "events.0.0.jsonl"
    file.write_bytes(b"x" * (MAX_LINE_BYTES + 1))
    tailer = EventTailer("r", tmp_path)
    assert [row["event"] for _, row in rows(tailer)] == ["malformed"]
    assert tailer.offsets == {file.name: MAX_LINE_BYTES + 1}


MALFORMED = [
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
]
INCOMPLETE: list[dict[str, object]] = [
    {"event": "phase"},
    {"event": "step", "phase": "measure"},
    {"event": "step", "step": "1"},
    {"event": "result", "name": "loss"},
    {"event": "result", "value": 1},
    {"event": "result", "name": "loss", "value": [1]},
    {"event": "op", "name": "gemm", "calls": 6, "steps": 3},
    {"event": "op", "kind": "kernel", "name": "gemm", "calls": 0.5, "steps": 3},
    {"event": "device", "uuid": 5},
]


@pytest.mark.parametrize("text", [*MALFORMED, *(line(**event) for event in INCOMPLETE)])
def test_a_line_that_is_malformed_or_lacks_a_required_field_is_rejected(text: bytes) -> None:
    with pytest.raises(MalformedEventError):
        event_row(parse_event(text), "r", 0)


RESULTS = [
    (
        {f"{rank}.0": {"throughput": 100.5 + rank, "loss": rank, "device": f"GPU {rank}"} for rank in (0, 1, 10)},
        {"throughput": 312.5, "loss": 0, "device": "GPU 0"},
    ),
    (
        {f"0.{restart}": {"throughput": restart, "loss": restart} for restart in (0, 2, 10)},
        {"throughput": 10, "loss": 10},
    ),
    ({"0.0": {"throughput": 5}, "1.0": {"throughput": "none"}, "2.0": {"late": 1}}, {"throughput": 5, "late": 1}),
]


@pytest.mark.parametrize(("files", "results"), RESULTS, ids=["ranks", "restarts", "one rank alone"])
def test_results_of_ranks_and_restarts_are_combined(
    tmp_path: Path, files: dict[str, dict[str, object]], results: dict[str, object]
) -> None:
    for name, values in files.items():
        lines = [line(event="result", name=result, value=value, phase="measure") for result, value in values.items()]
        (tmp_path / f"events.{name}.jsonl").write_bytes(b"".join(lines) + line(event="phase", name="measure"))
    digest = EventTailer("r", tmp_path).read_all()
    assert (digest.phase, digest.results) == ("measure", results)


def pieces(path: Path, *, has_ended: bool = True) -> list[str]:
    texts: list[str] = []
    offset = 0
    while not (piece := read_piece(path, offset, has_ended=has_ended)).at_end and piece.text:
        offset, texts = piece.next_offset_bytes, [*texts, piece.text]
    return [*texts, piece.text]


@given(text=st.text(st.sampled_from("ab ü𠀀\n\r"), max_size=200), repeats=st.sampled_from([1, 700, 3000]))
def test_pieces_add_up_to_the_file(tmp_path_factory: pytest.TempPathFactory, text: str, repeats: int) -> None:
    path = tmp_path_factory.mktemp("run") / "stdout"
    path.write_bytes((text * repeats).encode())
    assert "".join(pieces(path)) == text * repeats


def test_a_line_waits_for_its_end_while_the_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    assert read_piece(path, None, has_ended=False) == read_piece(path, 0, has_ended=False)
    path.write_text("one\ntw")
    first = read_piece(path, None, has_ended=False)
    assert (first.text, first.next_offset_bytes, first.at_end) == ("one\n", 4, False)
    with path.open("a") as file:
        file.write("o\rthree")
    assert read_piece(path, 4, has_ended=False).text == "two\r"
    last = read_piece(path, 8, has_ended=True)
    assert (last.text, last.at_end) == ("three", True)


def test_a_tail_is_the_end_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    path.write_text("x" * TAIL_BYTES + "end\n")
    assert read_piece(path, None, has_ended=True).text == "x" * (TAIL_BYTES - 4) + "end\n"


KEY = "-----BEGIN PRIVATE KEY-----\n" + "\n".join(["MIIEvQIBADANBgkq"] * 60) + "\n-----END PRIVATE KEY-----\n"


@settings(max_examples=30)
@given(before=st.integers(0, 3000))
def test_a_secret_is_hidden_wherever_it_is_cut(tmp_path_factory: pytest.TempPathFactory, before: int) -> None:
    path = tmp_path_factory.mktemp("run") / "stdout"
    path.write_text(
        "." * (PIECE_BYTES - before) + f" \n{KEY}after\npassword=hunter2\n" + "." * (TAIL_BYTES - before // 2)
    )
    for text in ("".join(pieces(path)), read_piece(path, None, has_ended=True).text):
        assert "MIIE" not in text
        assert "hunter2" not in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--token=abc123", "--token=[hidden]"),
        ("WANDB_API_KEY=0123456789", "WANDB_API_KEY=[hidden]"),
        ('password: "two words"', "password: [hidden]"),
        ("Authorization: Bearer abcdefghijkl", "Authorization: [hidden]"),
        ("pushed to https://me:secret@host/x", "pushed to https://[hidden]@host/x"),
        ("key AKIAABCDEFGHIJKLMNOP used", "key [hidden] used"),
        ("--learning-rate=0.1 --tokens-per-batch 5", "--learning-rate=0.1 --tokens-per-batch 5"),
        ("loss 0.25 at step 3", "loss 0.25 at step 3"),
    ],
)
def test_secrets_are_hidden_and_other_text_is_not(text: str, expected: str) -> None:
    assert redact_text(text) == expected


def test_the_argument_after_a_secret_option_is_hidden() -> None:
    redacted = redact_arguments(["train", "--password", "hunter2", "--lr", "1"])
    assert redacted == ["train", "--password", "[hidden]", "--lr", "1"]


@given(
    st.text(st.characters(categories=["L", "N"]), min_size=1), st.sampled_from(["API_TOKEN", "secret", "my.password"])
)
def test_no_value_of_a_telling_name_survives(value: str, name: str) -> None:
    assert redact_text(f"before {name}={value} after") == f"before {name}=[hidden] after"


@pytest.mark.parametrize("piece", ["-", "token-", "a.", "token=", "secret_", "\t", "a:", "token", "-eyJ", "://a:"])
def test_hostile_text_is_redacted_fast(piece: str) -> None:
    assert isinstance(redact_text(piece * (200_000 // len(piece))), str)


@pytest.mark.parametrize(
    "event",
    [
        {"event": "step", "phase": "measure", "step": 1, "wall_seconds": -0.5},
        {"event": "step", "phase": "measure", "step": 1, "wall_seconds": 1e300},
        {"event": "steps", "phase": "measure", "step": 1, "wall_nano": [2**63 - 1]},
    ],
)
def test_an_impossible_time_is_absent_and_no_part_of_the_figures(tmp_path: Path, event: dict[str, object]) -> None:
    good = {"event": "step", "phase": "measure", "step": 0, "wall_seconds": 0.5, "items": 4}
    (tmp_path / "events.0.0.jsonl").write_bytes(line(**good) + line(**event))
    tailer = EventTailer("run", tmp_path)
    steps = [row["wall_seconds"] for table, row in rows(tailer) if table == "steps"]
    assert (steps, tailer.digest.malformed) == ([0.5, None], 1)
    assert "wall_seconds" in (tailer.digest.complaint or "")
    assert tailer.digest.steps.of(0).seconds == 0.5


@pytest.mark.parametrize("waited", ["long", [], -1, 1e300])
def test_a_malformed_wait_for_data_stops_no_reading(tmp_path: Path, waited: object) -> None:
    bad = {"event": "steps", "phase": "measure", "step": 0, "wall_nano": [5], "data_wait_seconds": waited}
    (tmp_path / "events.0.0.jsonl").write_bytes(line(**bad) + line(event="phase", name="teardown"))
    tailer = EventTailer("run", tmp_path)
    assert rows(tailer)[-1][1]["name"] == "teardown"
    assert tailer.digest.malformed == 1
    assert tailer.digest.steps.of(0).data_wait_seconds is None
