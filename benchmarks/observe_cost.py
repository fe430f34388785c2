"""The cost of `gpuagent run --observe` for each step of a program, with its hooks in place and removed in turns.

The first loop has a data loader and an optimizer but nothing to compute, so that the difference in CPU time stands out.
The second has steps of 5 ms and waits for each, so that nothing hides what the host does, and CUDA events and files are
as frequent as in a program. It takes 90 s.
"""

from __future__ import annotations

import math
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, TensorDataset, dataloader

from benchmarks.figures import Figure
from gpuagent_report.observe import Observer
from gpuagent_report.steps import StepRecorder

if TYPE_CHECKING:
    from tests.support.servers import Node

    # Of a window of steps: CPU and wall time a step, in seconds.
    Costs = tuple[float, float]

PAIRS = 36
BARE_STEPS = 1000
# A second, in which a program's steps are written once.
STEPS = 200
STEP_SECONDS = 0.005


def measure(_node: Node | None = None) -> Iterator[Figure]:
    """Yield the added CPU and wall time of a step in µs, a value a pair of windows; with a GPU the time of parts."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "no GPU"
    parameter = torch.nn.Parameter(torch.ones(8, device=device))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    work = _make_work(device)

    def train(steps: int, work: Callable[[], object]) -> Costs:
        wait = torch.cuda.synchronize if device.type == "cuda" else int
        batches = iter(DataLoader(TensorDataset(torch.zeros(steps * 2, 4)), batch_size=2))
        cpu_seconds, began_seconds = 0.0, time.perf_counter()
        for _ in range(steps):
            before_seconds = time.thread_time()
            next(batches)
            cpu_seconds += time.thread_time() - before_seconds
            work()
            before_seconds = time.thread_time()
            optimizer.step()
            cpu_seconds += time.thread_time() - before_seconds
            wait()
        return cpu_seconds / steps, (time.perf_counter() - began_seconds) / steps

    plain, added = _compare(lambda: train(BARE_STEPS, int))
    yield _figure("CPU time of a step without work", [cpu for cpu, _ in added], STEP_SECONDS, name)
    plain, added = _compare(lambda: train(STEPS, work))
    step_seconds = statistics.median(wall for _, wall in plain)
    note = f"step of {1000 * step_seconds:.2f} ms; {name}"
    yield _figure("CPU time of a step", [cpu for cpu, _ in added], step_seconds, note)
    yield _figure("wall time of a step", [wall for _, wall in added], step_seconds, note)
    if device.type == "cuda":
        yield from _parts()


def _make_work(device: torch.device) -> Callable[[], object]:
    """Return a function that takes the time of a step on a device."""
    matrix = torch.randn(2048 if device.type == "cuda" else 256, 2048 if device.type == "cuda" else 256, device=device)

    def work(products: int) -> None:
        for _ in range(products):
            torch.mm(matrix, matrix)

    seconds = math.inf
    for products in (10, 100):  # the first ones choose a kernel
        began_seconds = time.perf_counter()
        work(products)
        torch.cuda.synchronize() if device.type == "cuda" else None
        seconds = (time.perf_counter() - began_seconds) / products
    return lambda: work(max(1, round(STEP_SECONDS / seconds)))


def _compare(train: Callable[[], Costs]) -> tuple[list[Costs], list[Costs]]:
    """Run windows of steps without the hooks and with them, in random order; return their costs and what is added."""
    train()
    order = random.Random(1)
    plain: list[Costs] = []
    added: list[Costs] = []
    with tempfile.TemporaryDirectory() as folder:
        observer = Observer(StepRecorder(folder))
        for _ in range(PAIRS):
            costs = {}
            for is_observed in order.sample([True, False], 2):
                with _observing(observer) if is_observed else nullcontext():
                    costs[is_observed] = train()
            plain.append(costs[False])
            added.append((costs[True][0] - costs[False][0], costs[True][1] - costs[False][1]))
        observer.recorder.finish()
    return plain, added


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


def _figure(name: str, added_seconds: list[float], step_seconds: float, note: str) -> Figure:
    """Return the added time with the 95 % interval of its median, by the ranks of the values."""
    values = sorted(1e6 * seconds for seconds in added_seconds)
    below = max(0, math.floor(len(values) / 2 - 0.98 * len(values) ** 0.5))
    low, median, high = values[below], statistics.median(values), values[-1 - below]
    shares = [f"{value / step_seconds / 1e4:.3f}" for value in (median, low, high)]
    interval = f"95 % {low:.2f} to {high:.2f} µs; {shares[0]} % [{shares[1]}, {shares[2]}]"
    return Figure(name=f"observation: {name}", unit="µs", values=values, note=f"{interval} of {note}")


def _parts() -> Iterator[Figure]:
    """Yield the host's time for calls that the observation makes or avoids, in µs."""
    event = torch.cuda.Event(enable_timing=True)
    calls: dict[str, Callable[[], object]] = {
        "a CUDA event is recorded": event.record,
        "a CUDA event is asked for": event.query,
        "a CUDA graph is asked for": torch.cuda.is_current_stream_capturing,
        "the clock is read": time.perf_counter_ns,
    }
    for name, call in calls.items():
        took = []
        for _ in range(500):
            began_nano = time.perf_counter_ns()
            call()
            took.append((time.perf_counter_ns() - began_nano) / 1000)
        torch.cuda.synchronize()
        yield Figure(name=name, unit="µs", values=took, note="wall time, with that of reading the clock")


if __name__ == "__main__":
    for figure in measure():
        print(figure.row(), flush=True)
