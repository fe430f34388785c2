"""Logs of trackers."""

import json
from pathlib import Path

import pytest

from gpuagent_collector.exchange.logs import LoggedStep, read_log
from gpuagent_common.errors import MisuseError


def test_the_history_of_weights_and_biases_is_read_with_its_gaps(tmp_path: Path) -> None:
    lines = [
        {"_step": 0, "_timestamp": 100.5, "_runtime": 3, "loss": 2.0, "lr": "0.1", "images": {"_type": "image"}},
        {"_step": 10, "_timestamp": 101.5, "loss": "NaN", "flag": True},
        {"note": "no step"},
    ]
    file = tmp_path / "history.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    assert read_log(file) == {
        0: LoggedStep(unix_seconds=100.5, values={"loss": 2.0, "lr": 0.1}),
        10: LoggedStep(unix_seconds=101.5),
    }


def test_a_folder_of_mlflow_is_read_by_step(tmp_path: Path) -> None:
    (tmp_path / "metrics/train").mkdir(parents=True)
    (tmp_path / "metrics/train/loss").write_text("1000 2.5 0\n2000 1.5 1\n30")
    (tmp_path / "metrics/accuracy").write_text("2500 0.5 1\n")
    assert read_log(tmp_path) == {
        0: LoggedStep(unix_seconds=1.0, values={"train/loss": 2.5}),
        1: LoggedStep(unix_seconds=2.5, values={"train/loss": 1.5, "accuracy": 0.5}),
    }


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.csv", b"loss,lr\n1,2\n"), ("a.jsonl", b"not JSON\n"), ("a.jsonl", b"[1]\n"), ("a.csv", b"\xff\xfe")],
)
def test_what_is_no_log_is_refused(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(MisuseError):
        read_log(tmp_path / name)
