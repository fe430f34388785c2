from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.support.servers import Node
from tests.support.sites import Site


@pytest.fixture
def site(node: Node, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A collector that serves, and an agent to be."""
    # So that commands find the agent, which runs in this process.
    monkeypatch.setenv("GPUAGENT_RUNTIME_DIR", node.environment["GPUAGENT_RUNTIME_DIR"])
    with closing(Site(node)) as site:
        yield site
