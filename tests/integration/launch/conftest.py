"""A collector and two real agents: one strict, one that takes any command."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.launch.lab import Lab
from tests.support.servers import Node


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Both agents are connected; a test leaves them with nothing to do."""
    with closing(Node(tmp_path_factory.mktemp("lab"))) as node:
        lab = Lab(node)
        lab.start_agent("strict", "--platform", "satori", "--label", "rack=7")
        lab.start_agent("lenient", "--platform", "openshift", "--label", "rack=7", "--allow-commands")
        lab.await_agents("strict", "lenient")
        yield lab


@pytest.fixture
def gate(lab: Lab, tmp_path: Path) -> Iterator[Path]:
    """A file for which the programs of this test wait; it comes when the test ends, however it does."""
    gate = tmp_path / "go"
    try:
        yield gate
    finally:
        gate.touch()
