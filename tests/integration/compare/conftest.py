"""Stores to compare in, and answers that are asked once."""

import json
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpuagent_collector.cli.answers import AnswerCommand
from gpuagent_collector.present.answer import Answer
from gpuagent_collector.query.ask import Ask
from tests.integration.compare.filled import FILLS, Fill
from tests.support.commands import Collector, Printed, made_up


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Fill], Path]:
    """Make a store that a function fills, once for all tests."""

    @cache
    def make(fill: Fill) -> Path:
        path = tmp_path_factory.mktemp("store") / "runs.duckdb"
        with made_up(path) as store:
            fill(store)
        return path

    return make


@pytest.fixture(scope="session")
def _answered() -> dict[str, Answer]:
    return {}


@pytest.fixture
def call(
    collector: Collector,
    filled: Callable[[Fill], Path],
    _answered: dict[str, Answer],
    monkeypatch: pytest.MonkeyPatch,
) -> Collector:
    """Run a command of `collector` on the store that is made for it, or another, in 80 columns.

    What another format or width asks of the same store is asked once, unless the SQL is to be shown or a file written.
    """
    answer = AnswerCommand.call

    def answer_once(
        entry: AnswerCommand, ask: Ask, source: str, asked: dict[str, Any], place: Sequence[str] = ()
    ) -> Answer:
        question = f"{source} {entry.function} {asked}"
        writes_file = entry.is_file or any(isinstance(value, Path) for value in asked.values())
        if "--show-sql" in sys.argv or writes_file or question not in _answered:
            _answered[question] = answer(entry, ask, source, asked, place)
        return _answered[question]

    monkeypatch.setattr(AnswerCommand, "call", answer_once)

    def run(command: str, *arguments: str, columns: int = 80, store: Path | None = None) -> Printed:
        return collector(command, store or filled(FILLS[command]), *arguments, columns=columns)

    return run


@pytest.fixture
def ask(collector: Collector) -> Callable[..., dict[str, Any]]:
    """Ask a command of `collector` about a store, and return its JSON."""

    def run(store: Path, command: str, *arguments: str) -> dict[str, Any]:
        code, out, err = collector(command, store, *arguments, "--json", columns=80)
        assert code == 0, err
        found: dict[str, Any] = json.loads(out)
        return found

    return run
