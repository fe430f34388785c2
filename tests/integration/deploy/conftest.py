from collections.abc import Iterator

import pytest

from tests.support.containers import short_folder
from tests.support.servers import ForkingNode, Node


@pytest.fixture
def node() -> Iterator[Node]:
    """A folder with a short name: the paths of sockets have 107 bytes."""
    with short_folder() as folder, ForkingNode(folder) as node:
        yield node
