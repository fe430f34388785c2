from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuagent_collector.store import Store
from gpuagent_common.address import Address
from tests.support.http import served_store
from tests.support.recent import fill
from tests.support.stores import open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "runs.duckdb")) as store:
        fill(store)
        yield store


@pytest.fixture
def site(store: Store) -> Iterator[Address]:
    """Where everything that a collector serves is served, of that store."""
    with served_store(store) as address:
        yield address
