"""A collector and two real agents: a strict one, and one that accepts any command."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.launch.lab import Lab
from tests.support.servers import ForkingNode


# Not of all modules: two agents that sample until the last test of all took a twentieth of the time of `make test`.
@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab with both agents connected; a test leaves them idle."""
    with closing(ForkingNode(tmp_path_factory.mktemp("lab"))) as node:
        lab = Lab(node)
        lab.start_agent("strict", "--platform", "satori", "--label", "rack=7")
        lab.start_agent("lenient", "--platform", "openshift", "--label", "rack=7", "--allow-commands")
        lab.await_agents("strict", "lenient")
        yield lab


@pytest.fixture
def gate(lab: Lab, tmp_path: Path) -> Iterator[Path]:
    """A file that the programs of this test wait for; made on exit in any case."""
    gate = tmp_path / "go"
    try:
        yield gate
    finally:
        gate.touch()
