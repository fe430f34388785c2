"""Runs on the terminal."""

import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest

from gpuagent.cli import follow, run
from gpuagent.cli.follow import Follower, describe_misplaced
from gpuagent_proto.v1.run_pb2 import RunSpec, RunUpdate
from tests.support.servers import LIMIT_SECONDS


def test_a_run_that_waits_for_another_program_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    printed: list[str] = []
    is_printed = threading.Event()

    def echo(line: str, **_: object) -> None:
        printed.append(line)
        is_printed.set()

    def updates() -> Iterator[RunUpdate]:
        yield RunUpdate(run_id="a-run", status="queued", run_directory=str(tmp_path))
        assert is_printed.wait(LIMIT_SECONDS)
        yield RunUpdate(run_id="a-run", status="cancelled", run_directory=str(tmp_path))

    monkeypatch.setattr("click.echo", echo)
    monkeypatch.setattr(follow, "_QUEUE_SECONDS", 0)
    Follower(RunSpec(repeats=1), quiet_stdout=False).follow(updates())
    assert "another program" in printed[0]


def test_what_a_program_chose_does_nothing_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    update = RunUpdate(
        run_id="a-run",
        status="failed",
        run_directory=str(tmp_path),
        reason="exit code 1: \x1b[2J",
        notice="1 process (\x1b[2J) was left",
    )
    (tmp_path / "events\x1b[2J").touch()
    Follower(RunSpec(repeats=1), quiet_stdout=False).follow(iter([update]))
    printed = capsys.readouterr().err
    assert "\x1b" not in printed
    assert printed.count("\\x1b[2J") == 3


def test_a_wait_behind_other_runs_is_said_apart_from_the_run_s_own_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = 0.0
    monkeypatch.setattr("time.monotonic", lambda: seconds)

    def updates() -> Iterator[RunUpdate]:
        nonlocal seconds
        for run_id in ("first", "second"):
            yield RunUpdate(run_id=run_id, status="queued", run_directory=str(tmp_path))
        for run_id, waits in (("first", 60), ("second", 0)):
            seconds += waits
            yield RunUpdate(run_id=run_id, status="running", run_directory=str(tmp_path))
            seconds += 7  # the agent reads and deletes for a while after the program's end
            yield RunUpdate(run_id=run_id, status="succeeded", run_directory=str(tmp_path), seconds=2)

    Follower(RunSpec(repeats=2), quiet_stdout=False).follow(updates())
    assert capsys.readouterr().err.splitlines() == [
        "gpuagent: [1/2] first runs, after it waited 60 s behind other runs",
        "gpuagent: [1/2] first succeeded in 2.0 s",
        "gpuagent: [2/2] second runs",
        "gpuagent: [2/2] second succeeded in 2.0 s",
    ]


def test_a_run_whose_output_fits_no_pattern_ends_with_a_line_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stdout").write_text("epoch 1 of 2\nepoch 2 of 2\n")
    update = RunUpdate(run_id="a-run", status="succeeded", run_directory=str(tmp_path))
    Follower(RunSpec(repeats=1, pattern="step {step}"), quiet_stdout=False).follow(iter([update]))
    assert "'epoch 2 of 2'" in capsys.readouterr().err


ARGPARSE = "import argparse; parser = argparse.ArgumentParser(); parser.add_argument('--rate'); parser.parse_args()"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sort", "--repeat=3"], "so sort got it; put it first: gpuagent run --repeat=3 …"),
        ([sys.executable, "-c", ARGPARSE, "--repeat", "3"], "put it first: gpuagent run --repeat 3 …"),
        ([sys.executable, "-c", ARGPARSE, "--rate", "3", "--json"], "--json comes after the program"),
        # An option that the program has as well, and one that we lack.
        ([sys.executable, "-c", ARGPARSE, "--rate"], ""),
        ([sys.executable, "-c", ARGPARSE, "--seed", "1"], ""),
    ],
)
def test_an_option_of_ours_that_the_program_refuses_is_named(
    arguments: Sequence[str], said: str, tmp_path: Path
) -> None:
    with (tmp_path / "stderr").open("wb") as errors:
        subprocess.run(arguments, stderr=errors, check=False)
    context = click.Context(run.command, click.Context(click.Group(), info_name="gpuagent"), info_name="run")
    described = describe_misplaced(context, arguments, tmp_path) or ""
    assert said in described
    assert bool(said) == bool(described)
