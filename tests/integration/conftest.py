from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import Node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A folder in which our commands run; whatever was started in it is stopped."""
    node = Node(tmp_path)
    yield node
    node.close()
