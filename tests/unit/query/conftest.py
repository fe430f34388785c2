from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuagent_collector.query.guard import Guard, store_relations
from gpuagent_collector.store import Store
from tests.support.stores import fill


@pytest.fixture(params=["", "ducklake:"], ids=["file", "lake"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A filled store, open for writing as in a collector."""
    with Store.open(f"{request.param}{tmp_path}/runs.duckdb") as store:
        fill(store)
        yield store


@pytest.fixture
def guard(store: Store) -> Guard:
    with store.connect() as connection:
        return Guard(store_relations(connection))
