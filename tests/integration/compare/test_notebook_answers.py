"""Answers in a notebook: the same as those of the commands."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpuagent_collector import connect
from gpuagent_collector.choices import PartKind
from gpuagent_common.errors import MisuseError
from tests.integration.compare.filled import FILLS, Fill
from tests.support.commands import Collector
from tests.support.pages import cells, parse


@pytest.fixture
def store(filled: Callable[[Fill], Path]) -> Path:
    return filled(FILLS["compare"])


def test_a_comparison_is_that_of_the_command(store: Path, call: Collector) -> None:
    with connect(store) as opened:
        answer = opened.compare("cpu-burn", "none", by="interference", each=PartKind.GPU, delta=3)
    _, printed, _ = call(
        "compare", "cpu-burn", "none", "--by", "interference", "--each", "gpu", "--delta", "3", "--json"
    )
    assert answer.json() == printed.rstrip("\n")
    assert answer.record()["delta"] == 0.03


def test_a_notebook_shows_tables_with_all_stored_text_escaped(store: Path) -> None:
    with connect(store) as opened:
        page = parse(opened.compare(by="interference")._repr_html_())
        (first, *_) = page.all("table")
        assert cells(first)[0][0] == "side / baseline"
        assert not page.all("script")
        assert "mnist" in repr(opened.show("mnist"))


def test_what_a_command_refuses_a_notebook_refuses(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with connect(store) as opened:
        for name, options in (("compare", {"by": "nonsense"}), ("compare", {"colour": 1}), ("runs", {})):
            with pytest.raises(MisuseError):
                opened.answer(name, **options)
        with pytest.raises(MisuseError, match="writes a file"):
            opened.answer("plot", "throughput", output="x.svg")
    assert not list(tmp_path.glob("*.svg"))
