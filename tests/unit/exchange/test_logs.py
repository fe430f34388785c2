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


CHART = (
    '"Step","a - b - loss","a - b - loss__MIN","a - b - loss__MAX","calm-sea-4 - loss","calm-sea-4 - loss__MIN",'
    '"calm-sea-4 - loss__MAX"\n"0","1.0","0.9","1.1","2.0","2.0","2.0"\n"1","0.5","0.4","0.6","",,\n'
)


def test_a_chart_of_several_runs_is_one_of_them_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "chart.csv"
    file.write_text(CHART)
    with pytest.raises(MisuseError, match=r"2 runs \(a - b, calm-sea-4\); name one with --log-run"):
        read_log(file)
    with pytest.raises(MisuseError, match="2 runs"):
        read_log(file, "another")
    assert read_log(file, "a - b") == {0: LoggedStep(values={"loss": 1.0}), 1: LoggedStep(values={"loss": 0.5})}
    assert read_log(file, "calm-sea-4") == {0: LoggedStep(values={"loss": 2.0}), 1: LoggedStep()}


def test_a_chart_of_one_run_has_its_metrics_without_their_bounds(tmp_path: Path) -> None:
    file = tmp_path / "chart.csv"
    file.write_text("Step,r - loss,r - loss__MIN,r - loss__MAX,r - lr,r - lr__MIN,r - lr__MAX\n3,1,0,2,4,4,4\n")
    assert read_log(file) == {3: LoggedStep(values={"loss": 1.0, "lr": 4.0})}


@pytest.mark.parametrize("name", ["Run", "run_id", "Run Name"])
def test_rows_of_several_runs_are_not_mixed(name: str, tmp_path: Path) -> None:
    file = tmp_path / "metrics.csv"
    file.write_text(f"{name},step,value\n17,0,1\n17,1,2\n18,0,9\n")
    with pytest.raises(MisuseError, match=r"2 runs \(17, 18\)"):
        read_log(file)
    with pytest.raises(MisuseError, match="names no run '19'"):
        read_log(file, "19")
    assert read_log(file, "17") == {0: LoggedStep(values={"value": 1.0}), 1: LoggedStep(values={"value": 2.0})}


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("2026-01-10T10:00:01.500Z", 1768039201.5),
        ("2026-01-10T10:00:01.500000", 1768039201.5),
        ("2026-01-10 12:00:01.500000+02:00", 1768039201.5),
        ("1768039201.5", 1768039201.5),
        ("", None),
        ("NaN", None),
    ],
)
def test_times_are_iso_or_unix_seconds(written: str, seconds: float | None, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"step,timestamp,loss\n0,{written},1\n")
    (tmp_path / "a.jsonl").write_text(json.dumps({"step": 0, "timestamp": written, "loss": 1}))
    for file in ("a.csv", "a.jsonl"):
        assert read_log(tmp_path / file) == {0: LoggedStep(unix_seconds=seconds, values={"loss": 1.0})}


def test_a_column_of_times_in_another_form_is_absent(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("step,time,loss\n0,00:01:30 elapsed,1\n")
    assert read_log(tmp_path / "a.csv") == {0: LoggedStep(unix_seconds=None, values={"loss": 1.0})}


@pytest.mark.parametrize("name", ["_runtime", "elapsed", "elapsed_s", "Elapsed_Seconds", "Relative Time (Process)"])
def test_a_column_of_elapsed_seconds_is_the_time_where_no_other_is(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"{name},step,loss\n1.5,5,1\n")
    assert read_log(tmp_path / "a.csv") == {5: LoggedStep(unix_seconds=1.5, values={"loss": 1.0})}
    (tmp_path / "b.csv").write_text(f"{name},step,time\n1.5,5,1768039201\n")
    assert read_log(tmp_path / "b.csv")[5].unix_seconds == 1768039201


@pytest.mark.parametrize("row", ["0,yesterday,1", "0,1768039201500,1", "0,-5,1", "1e300,5,1"])
def test_times_and_steps_that_cannot_be_meant_are_refused(row: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"step,timestamp,loss\n{row}\n")
    with pytest.raises(MisuseError, match=r"has the (time|step)"):
        read_log(tmp_path / "a.csv")


@pytest.mark.parametrize("index", ["", "Unnamed: 0"])
def test_the_index_of_pandas_is_no_metric(index: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"{index},step,loss\n0,5,1\n")
    assert read_log(tmp_path / "a.csv") == {5: LoggedStep(values={"loss": 1.0})}


def test_the_metrics_that_a_program_printed_are_those_of_its_steps(tmp_path: Path) -> None:
    lines = ["starting", "Step [1/2], Loss: 0.5", "Epoch 1, loss 0.4", "Step [2/2], Loss: 0.4", "Step [1/2], Loss: 0.3"]
    (tmp_path / "train.log").write_text("\n".join(lines))
    steps = {number: step.values["loss"] for number, step in read_log(tmp_path / "train.log").items()}
    assert steps == {1: 0.5, 2: 0.4, 3: 0.3}
    (tmp_path / "train.log").write_text("starting\n")
    with pytest.raises(MisuseError, match="has no steps"):
        read_log(tmp_path / "train.log")
