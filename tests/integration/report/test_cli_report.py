"""`collector report` as its users call it."""

from pathlib import Path

import pytest

from tests.integration.compare.synthetic import quiet_and_burning
from tests.support.commands import Collector, made_up
from tests.support.pages import parse


@pytest.fixture
def report(collector: Collector, tmp_path: Path) -> Collector:
    """Run `collector report` on a store of MNIST alone and beside a CPU load."""
    with made_up(tmp_path / "runs.duckdb") as store:
        quiet_and_burning(store)
    return lambda *arguments: collector("report", tmp_path / "runs.duckdb", *arguments, columns=80)


def test_the_file_is_written_with_its_command_and_only_replaced_on_request(report: Collector, tmp_path: Path) -> None:
    path = tmp_path / "out.html"
    code, out, err = report(str(path), "--by", "interference")
    assert (code, err) == (0, f"reading the store {tmp_path / 'runs.duckdb'}\n")
    assert out.startswith(f"{path}: ")
    assert out.endswith(" MB\n")
    page = parse(path.read_text())
    assert page.all("h1")[0].text == "mnist by interference: none, cpu-burn"
    assert "collector compare --by interference" in page.by_id("reproduce").text
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".out")] == []

    path.write_text("mine")
    code, _, err = report(str(path), "--by", "interference")
    assert code == 2
    assert "already exists; replace it with --force" in err
    assert path.read_text() == "mine"
    code, _, _ = report(str(path), "cpu-burn", "none", "--by", "interference", "--delta", "5", "--force")
    assert code == 0
    shown = parse(path.read_text()).by_id("reproduce").text
    assert "collector report report.html cpu-burn none --by interference --delta 5" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["{}/nowhere/out.html", "--by", "interference"], 2, "the directory"),
        (["{}", "--by", "interference"], 2, "is not a regular file"),
        (["{}/out.html"], 1, "nothing to compare: all runs have the platform laptop"),
        (["{}/out.html", "--by", "colour"], 2, "--by colour is unknown"),
        (["{}/out.html", "none", "--by", "interference"], 2, "none alone cannot be compared"),
        (["{}/out.html", "--by", "interference", "--where", "repeat > 99"], 2, "no run satisfies --where"),
        (["{}/out.html", "--by", "interference", "--metric", "beauty"], 2, "--metric beauty is unknown"),
    ],
)
def test_what_makes_no_sense_is_said_and_writes_nothing(
    report: Collector, tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    ended, _, err = report(*(each.format(tmp_path) for each in arguments))
    assert ended == code
    assert said in err
    assert "Traceback" not in err
    assert not (tmp_path / "out.html").exists()
