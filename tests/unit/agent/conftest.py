from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.parts import executing
from tests.unit.agent.running import Node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    with executing(node.runner):
        yield node
    node.spool.close()
