from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from gpuagent_collector.store import Store
from tests.support.stores import KINDS, fill, put_store


@pytest.fixture(scope="module", autouse=True)
def _all_threads() -> Iterator[None]:
    """Let DuckDB have as many threads as it takes for a user: all of them have to obey interrupts and limits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SLURM_CPUS_ON_NODE")
        yield


def open_filled(kind: str, folder: Path) -> Store:
    return Store.open(put_store(f"{kind}{folder}/runs.duckdb", fill))


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with open_filled(getattr(request, "param", ""), tmp_path) as store:
        yield store


@pytest.fixture(scope="module")
def _open_shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Store]]:
    """Opens one store of each kind; a fixture with parameters would close one whenever the other's turn comes."""
    with ExitStack() as opened:
        yield cache(lambda kind: opened.enter_context(open_filled(kind, tmp_path_factory.mktemp("shared"))))


@pytest.fixture(params=KINDS, ids=["file", "lake"])
def shared_store(request: pytest.FixtureRequest, _open_shared: Callable[[str], Store]) -> Store:
    """A filled store for those tests of a module that leave it as it is."""
    return _open_shared(request.param)
