"""Words of answers: commands that can be pasted."""

from pathlib import Path

import pytest

from gpuagent_collector.runs.words import name_file, narrow, read_from


def test_a_next_command_writes_a_file_that_does_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("report.html", "report-2.html", "report-3.html"):
        assert name_file("report.html") == name
        Path(name).touch()


@pytest.mark.parametrize(
    ("given", "within"),
    [
        ("a = '--lr' OR b", "(a = '--lr' OR b)"),
        ("a OR b -- or c", "(a OR b)"),
        ("\"a--b\" = 'it''s--'", "(\"a--b\" = 'it''s--')"),
    ],
)
def test_a_condition_is_narrowed_on_one_line_without_its_comment(given: str, within: str) -> None:
    narrowed = narrow(given, {"lr": 0.1}, ["c"])
    assert narrowed is not None
    assert narrowed.words == ("--param", "lr=0.1", "--where", f"c AND {within}")


def test_of_two_commands_each_that_reads_does_so_from_the_same_place() -> None:
    both = "collector plan -o plan.yaml && collector launch plan.yaml --wait"
    at = ("--collector", "lab:50051")
    assert read_from(both, at).count(" --collector lab:50051 ") == 2
    store = ("--store", "a.duckdb")
    assert read_from(both, store) == both.replace("plan -o", "plan --store a.duckdb -o")
    assert read_from("gpuagent experiment run a.yaml", store) == "gpuagent experiment run --store a.duckdb a.yaml"
