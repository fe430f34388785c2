"""The agent's slowdown of a training run: one process trains while the agent is paused and resumed.

Pairs of short windows of as many steps each, one with the agent running and one with it stopped by SIGSTOP, in an order
drawn for each pair, until the 95 % interval of their ratio is narrower than 0.05 % or the time is over. Short, because
clocks and neighbours drift within seconds, and what drifts slower than a pair falls out of its ratio.
"""

import math
import os
import random
import signal
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from torch.nn.functional import cross_entropy

from benchmarks.figures import Figure
from gpuagent_workloads.suite.classification.networks import resnet18
from tests.support.servers import Node

WINDOW_SECONDS = 0.5
# The goal for the upper bound of the slowdown, and the width of the interval at which it is known well enough.
MOST_PERCENT = 0.1
NARROW = 0.0005
LEAST_PAIRS = 30
MOST_SECONDS = float(os.environ.get("GPUAGENT_SLOWDOWN_SECONDS", "40"))
RATE_HZ = 10


def measure(node: Node) -> Iterator[Figure]:
    """Yield the slowdown of ResNet-18's steps by an agent at 10 Hz, a figure a pair, in percent."""
    agent = node.start_agent("--platform", "bench", "--rate", str(RATE_HZ))
    train = _training()
    train(3)  # the first steps choose kernels and take memory
    steps = max(1, round(3 * WINDOW_SECONDS / train(3)))
    ratios: list[float] = []
    for ratio in _pairs(agent.pid, lambda: train(steps)):
        ratios.append(ratio)
        if len(ratios) >= LEAST_PAIRS and 2 * _half_width(ratios) < NARROW:
            break
    node.stop(agent)
    mean, half = statistics.mean(ratios), _half_width(ratios)
    interval = f"mean {100 * mean:+.3f} %, 95 % interval {100 * (mean - half):+.3f} to {100 * (mean + half):+.3f} %"
    note = f"{interval}; pairs of windows of {steps} steps, agent at {RATE_HZ} Hz"
    yield Figure(name="slowdown of training", unit="%", values=[100 * ratio for ratio in ratios], note=note)
    note = "of the 95 % interval of the mean"
    yield Figure(name="slowdown: upper bound", unit="%", values=[100 * (mean + half)], note=note, goal=MOST_PERCENT)


def _pairs(agent_pid: int, train: Callable[[], float]) -> Iterator[float]:
    """Yield the relative slowdown, the logarithm of the ratio of its times, of one pair of windows after the other."""
    order = random.Random(1)
    end_seconds = time.monotonic() + MOST_SECONDS
    try:
        while time.monotonic() < end_seconds:
            seconds = {}
            for running in order.sample([True, False], 2):
                # No pause after it: what the agent makes up for when it goes on, such as its flush, counts against it.
                os.kill(agent_pid, signal.SIGCONT if running else signal.SIGSTOP)
                seconds[running] = train()
            yield math.log(seconds[True] / seconds[False])
    finally:
        os.kill(agent_pid, signal.SIGCONT)


def _half_width(ratios: list[float]) -> float:
    """Return half of the 95 % interval of the mean, by Student's t (its expansion for many degrees of freedom)."""
    z, freedom = statistics.NormalDist().inv_cdf(0.975), len(ratios) - 1
    t = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return t * statistics.stdev(ratios) / math.sqrt(len(ratios))


def _training() -> Callable[[int], float]:
    """Return what trains for so many steps and returns the seconds that they took."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    # Of two cores one is left to the agent; a GPU's host thread needs only one.
    torch.set_num_threads(1)
    # Enough work a step for the GPU to set the pace: where the host does, its own jitter hides what is looked for.
    batch, side = (256, 224) if device.type == "cuda" else (4, 64)
    model = resnet18(200).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images = torch.randn(batch, 3, side, side, device=device)
    labels = torch.randint(0, 200, (batch,), device=device)

    def train(steps: int) -> float:
        began_seconds = time.perf_counter()
        for _ in range(steps):
            optimizer.zero_grad()
            loss = cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        loss.item()  # waits for the device
        return time.perf_counter() - began_seconds

    return train
