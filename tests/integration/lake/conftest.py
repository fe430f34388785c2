from collections.abc import Iterator

import pytest

from gpuagent_collector.store import StoreSpec
from tests.support.postgres import Postgres, postgres


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    """A PostgreSQL for all tests; one that stops it starts it again."""
    with postgres() as running:
        yield running


@pytest.fixture(scope="module")
def lake(server: Postgres, tmp_path_factory: pytest.TempPathFactory) -> StoreSpec:
    return StoreSpec.parse(f"ducklake:postgres:{server.database()}", str(tmp_path_factory.mktemp("lake") / "files"))
