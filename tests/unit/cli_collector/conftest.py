from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.commands import run_collector
from tests.support.stores import make_store


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    code: int
    out: str
    err: str


Collector = Callable[..., Outcome]


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Collector:
    """Runs `collector ARGUMENTS…` in an empty folder, on a terminal of 80 columns."""
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("gpuagent_collector.query.reader.DEFAULT_ADDRESS", "127.0.0.1:1")

    def run(*arguments: str) -> Outcome:
        code, out, err = run_collector(capfd, *arguments)
        return Outcome(code=code, out=out, err=err)

    return run


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(make_store(tmp_path))
