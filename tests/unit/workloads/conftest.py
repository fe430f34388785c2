from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.support.forked import forked_ranks

__all__ = ["forked_ranks"]


@pytest.fixture(autouse=True)
def arithmetic() -> Iterator[None]:
    """Give the next test torch's arithmetic as it is by default: workloads choose another for their process."""
    backends: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [each.allow_tf32 for each in backends]
    yield
    for each, allowed in zip(backends, before, strict=True):
        each.allow_tf32 = allowed
