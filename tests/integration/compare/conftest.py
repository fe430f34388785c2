"""Stores to compare in: each kind that the collector has."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuagent_collector.store import Store
from tests.integration.compare.synthetic import SyntheticStore


@pytest.fixture(params=["", "ducklake:"], ids=["file", "lake"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SyntheticStore]:
    """An empty store, of each kind in turn."""
    yield from _open(f"{request.param}{tmp_path / 'runs.store'}")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SyntheticStore]:
    """An empty store in a DuckDB file."""
    yield from _open(str(tmp_path / "runs.duckdb"))


def _open(spec: str) -> Iterator[SyntheticStore]:
    with Store.open(spec) as opened:
        synthetic = SyntheticStore(opened.connect())
        yield synthetic
        synthetic.connection.close()
