from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuagent_collector.query.execute import Limits
from gpuagent_collector.store import Store
from tests.support.query_servers import Serving, serving_queries
from tests.support.stores import fill


@pytest.fixture
def serving(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Serving]:
    with Store.open(f"{getattr(request, 'param', '')}{tmp_path}/runs.duckdb") as store:
        fill(store)
        with serving_queries(store, Limits(timeout_seconds=20.0, rows=100_000)) as server:
            yield server
