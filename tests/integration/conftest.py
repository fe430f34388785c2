import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gpuagent_workloads.suite.mnist.data import make_digits
from tests.integration.compare.synthetic import SyntheticStore
from tests.support.commands import Collector, Printed, run_collector, synthetic
from tests.support.servers import ForkingNode, Node
from tests.support.shared import ForkingSharingNode, SharingNode
from tests.support.stores import KINDS
from tests.unit.workloads.runs import write_mnist


@pytest.fixture
def forks() -> bool:
    """Whether the commands of a node are forks, but in test_main_path, where they start as users start them."""
    return True


@pytest.fixture
def node(tmp_path: Path, forks: bool) -> Iterator[Node]:
    """A folder in which our commands run; whatever was started in it is stopped."""
    with (ForkingNode if forks else Node)(tmp_path) as node:
        yield node


@pytest.fixture(scope="session")
def shared_collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A collector for the nodes of all tests."""
    with Node(tmp_path_factory.mktemp("shared")) as node:
        node.serve()
        yield node


@pytest.fixture
def sharing(tmp_path: Path, shared_collector: Node, forks: bool) -> Iterator[Node]:
    """A node that delivers to the collector of all tests."""
    with (ForkingSharingNode if forks else SharingNode)(tmp_path, shared_collector) as node:
        yield node


@pytest.fixture
def meeting() -> Iterator[str]:
    """A port that nobody else is given: it stays bound, beside whoever listens there, as both allow that."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with few digits for mnist: to make 70,000, and to test on 10,000, takes longer than a test's steps."""
    folder = tmp_path_factory.mktemp("digits")
    write_mnist(folder, *make_digits(200, np.random.default_rng(1)))
    return folder


@pytest.fixture(params=KINDS, ids=["file", "lake"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SyntheticStore]:
    """An empty store, of each kind in turn."""
    with synthetic(f"{request.param}{tmp_path / 'runs.store'}") as store:
        yield store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SyntheticStore]:
    """An empty store in a DuckDB file."""
    with synthetic(tmp_path / "runs.duckdb") as store:
        yield store


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Collector:
    """Run a command of `collector` on a store, in a terminal of some width."""

    def run(command: str, store: Path, *arguments: str, columns: int) -> Printed:
        monkeypatch.setenv("COLUMNS", str(columns))
        return run_collector(capsys, command, "--store", str(store), *arguments)

    return run
