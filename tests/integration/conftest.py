from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gpuagent_workloads.suite.mnist.data import make_digits
from tests.support.servers import Node
from tests.unit.workloads.runs import write_mnist


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A folder in which our commands run; whatever was started in it is stopped."""
    with Node(tmp_path) as node:
        yield node


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with few digits for mnist: to make 70,000, and to test on 10,000, takes longer than a test's steps."""
    folder = tmp_path_factory.mktemp("digits")
    write_mnist(folder, *make_digits(200, np.random.default_rng(1)))
    return folder
