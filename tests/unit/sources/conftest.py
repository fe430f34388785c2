"""Sources on made-up nodes, closed when the test ends."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuagent.sources.source import Source, SourceContext
from tests.support.sources import OpenSource, S


@pytest.fixture
def open_source(procfs: Callable[[Path], Path]) -> Iterator[OpenSource]:
    opened: list[Source] = []

    def open_one(source_type: Callable[[SourceContext], S], /, **context: Any) -> S:
        if "proc" in context:
            procfs(context["proc"])
        source = source_type(SourceContext(**context))
        opened.append(source)
        return source

    yield open_one
    for source in opened:
        source.close()
