"""Both kinds of store."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from gpuagent_collector.store import Store


@pytest.fixture(params=["duckdb", "ducklake"])
def store_name(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = tmp_path / "runs.duckdb"
    return str(path) if request.param == "duckdb" else f"ducklake:{path}"


@pytest.fixture
def store(store_name: str) -> Iterator[Store]:
    with Store.open(store_name) as opened:
        yield opened


@pytest.fixture
def connection(store: Store) -> Iterator[duckdb.DuckDBPyConnection]:
    opened = store.connect()
    yield opened
    opened.close()
