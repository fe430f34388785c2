from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuagent_collector.query.execute import Limits
from tests.support.query_servers import Serving, serving_queries
from tests.support.stores import fill, open_store


@pytest.fixture
def serving(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Serving]:
    with open_store(f"{getattr(request, 'param', '')}{tmp_path}/runs.duckdb") as store:
        fill(store)
        with serving_queries(store, Limits(timeout_seconds=240.0, rows=100_000)) as server:
            yield server
