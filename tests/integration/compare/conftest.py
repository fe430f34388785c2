"""Stores to compare in: each kind that the collector has."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuagent_collector.cli import main
from gpuagent_collector.store import Store
from tests.integration.compare.synthetic import SyntheticStore
from tests.support.commands import Collector, Printed


@pytest.fixture(params=["", "ducklake:"], ids=["file", "lake"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SyntheticStore]:
    """An empty store, of each kind in turn."""
    yield from _open(f"{request.param}{tmp_path / 'runs.store'}")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SyntheticStore]:
    """An empty store in a DuckDB file."""
    yield from _open(str(tmp_path / "runs.duckdb"))


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Collector:
    """Run a command of `collector` on a store, in a terminal of some width."""

    def run(command: str, store: Path, *arguments: str, columns: int) -> Printed:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr("sys.argv", ["collector", command, "--store", str(store), *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return run


def _open(spec: str) -> Iterator[SyntheticStore]:
    with Store.open(spec) as opened:
        synthetic = SyntheticStore(opened.connect())
        yield synthetic
        synthetic.connection.close()
