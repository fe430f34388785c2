"""Runs on the terminal."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuagent.cli import follow
from gpuagent.cli.follow import Follower
from gpuagent_proto.v1.run_pb2 import RunUpdate


def test_a_run_that_waits_for_another_program_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    printed: list[str] = []
    is_printed = threading.Event()

    def echo(line: str, **_: object) -> None:
        printed.append(line)
        is_printed.set()

    def updates() -> Iterator[RunUpdate]:
        yield RunUpdate(run_id="a-run", status="queued", run_directory=str(tmp_path))
        assert is_printed.wait(60)
        yield RunUpdate(run_id="a-run", status="cancelled", run_directory=str(tmp_path))

    monkeypatch.setattr("click.echo", echo)
    monkeypatch.setattr(follow, "_QUEUE_SECONDS", 0)
    Follower(runs=1, quiet_stdout=False).follow(updates())
    assert "another program" in printed[0]
