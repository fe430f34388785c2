"""The cost of `gpuagent run --observe` for each step of a program, with its hooks in place and removed in turns.

The first loop has a data loader and an optimizer but nothing to compute, so that the difference in CPU time stands out;
with a GPU, CUDA events are recorded too. The second, on a GPU alone, has steps of 5 ms and waits for each, so that
nothing hides what the host does; it takes 45 s.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, TensorDataset, dataloader

from benchmarks.figures import Figure
from gpuagent_report.observe import Observer
from gpuagent_report.steps import StepRecorder

if TYPE_CHECKING:
    from tests.support.servers import Node

PAIRS = 40
STEPS = 4000
GPU_STEPS = 100
STEP_MILLISECONDS = 5
MATRIX = 2048


def measure(_node: Node | None = None) -> Iterator[Figure]:
    """Yield the added time of a step in µs, a value a pair of windows: CPU time, and with a GPU the wall time too."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    parameter = torch.nn.Parameter(torch.ones(8, device=device))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    batches = torch.randn(STEPS * 2, 4)

    def cpu_seconds_a_step() -> float:
        began_seconds = time.thread_time()
        for _ in DataLoader(TensorDataset(batches), batch_size=2):
            optimizer.step()
        return (time.thread_time() - began_seconds) / STEPS

    yield _compare("observation of a step", cpu_seconds_a_step, f"CPU time; {device.type}")
    if device.type == "cpu":
        return
    matrix = torch.randn(MATRIX, MATRIX, device=device)
    products = _products_a_step(matrix)

    def wall_seconds_a_step() -> float:
        began_seconds = time.perf_counter()
        for _ in DataLoader(TensorDataset(batches[: GPU_STEPS * 2]), batch_size=2):
            for _product in range(products):
                torch.mm(matrix, matrix)
            optimizer.step()
            torch.cuda.synchronize()
        return (time.perf_counter() - began_seconds) / GPU_STEPS

    plain_milliseconds = 1000 * wall_seconds_a_step()
    note = f"wall time; a step takes {plain_milliseconds:.2f} ms of {torch.cuda.get_device_name()}"
    yield _compare("observation of a step on a GPU", wall_seconds_a_step, note)


def _products_a_step(matrix: torch.Tensor) -> int:
    """Return how many products of the matrix with itself take the time of a step."""
    for count in (10, 100):  # the first ones choose a kernel
        torch.cuda.synchronize()
        began_seconds = time.perf_counter()
        for _ in range(count):
            torch.mm(matrix, matrix)
        torch.cuda.synchronize()
        seconds = (time.perf_counter() - began_seconds) / count
    return max(1, round(STEP_MILLISECONDS / 1000 / seconds))


def _compare(name: str, seconds_a_step: Callable[[], float], note: str) -> Figure:
    """Run windows of steps with the hooks and without, in random order; return what the hooks add to a step."""
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
        observer.recorder.finish()
    median = statistics.median(added)
    error = 1.2533 * statistics.stdev(added) / PAIRS**0.5  # of a median of normal values
    share = median / (10 * STEP_MILLISECONDS)
    return Figure(
        name=name, unit="µs", values=added, note=f"± {error:.2g}; {share:.3f} % of {STEP_MILLISECONDS} ms; {note}"
    )


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
