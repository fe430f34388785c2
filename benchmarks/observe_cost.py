"""The cost of `gpuagent run --observe` for each step of a program, with its hooks in place and removed in turns.

The loop has a data loader and an optimizer but nothing to compute, so that the difference stands out; with a GPU, CUDA
events are recorded too. A host that waits for its GPU does this work in that time.
"""

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, TensorDataset, dataloader

from benchmarks.figures import Figure
from gpuagent_report.observe import Observer
from gpuagent_report.steps import StepRecorder
from tests.support.servers import Node

PAIRS = 40
STEPS = 4000
STEP_MILLISECONDS = 5


def measure(_node: Node | None = None) -> Iterator[Figure]:
    """Yield the added CPU time of a step in µs, a value a pair of windows: other programs do not change it."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    parameter = torch.nn.Parameter(torch.ones(8, device=device))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(STEPS * 2, 4)), batch_size=2)

    def seconds_a_step() -> float:
        began_seconds = time.thread_time()
        for _ in loader:
            optimizer.step()
        return (time.thread_time() - began_seconds) / STEPS

    seconds_a_step()
    order = random.Random(1)
    added: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        observer = Observer(StepRecorder(folder))
        for _ in range(PAIRS):
            seconds = {}
            for is_observed in order.sample([True, False], 2):
                with _observing(observer) if is_observed else _plainly():
                    seconds[is_observed] = seconds_a_step()
            added.append(1e6 * (seconds[True] - seconds[False]))
        size_bytes = sum(path.stat().st_size for path in Path(folder).iterdir())
    median = statistics.median(added)
    share = median / (10 * STEP_MILLISECONDS)
    note = f"{share:.3f} % of {STEP_MILLISECONDS} ms; {size_bytes / PAIRS / STEPS:.0f} bytes a step; {device.type}"
    yield Figure(name="observation of a step", unit="µs", values=added, note=note)


@contextmanager
def _plainly() -> Iterator[None]:
    yield


@contextmanager
def _observing(observer: Observer) -> Iterator[None]:
    iterators: Any = dataloader._BaseDataLoaderIter
    before: Callable[[Any], Any] = iterators.__next__
    iterators.__next__ = observer.wrap_next(before)
    handle = register_optimizer_step_post_hook(observer.end_step)
    try:
        yield
    finally:
        handle.remove()
        iterators.__next__ = before


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
