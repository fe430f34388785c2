"""An empty store: a DuckDB file, and a lake for tests that ask for both kinds."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from gpuagent_collector.store import Store
from tests.support.stores import on_both_kinds, open_store

ON_BOTH_KINDS = on_both_kinds("store_name")


@pytest.fixture
def store_name(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{getattr(request, 'param', '')}{tmp_path / 'runs.duckdb'}"


@pytest.fixture
def store(store_name: str) -> Iterator[Store]:
    with open_store(store_name) as opened:
        yield opened


@pytest.fixture
def connection(store: Store) -> Iterator[duckdb.DuckDBPyConnection]:
    opened = store.connect()
    yield opened
    opened.close()
