"""How much the agent slows a training run down: one process trains, and the agent is paused and resumed beside it.

Pairs of windows, one with the agent running and one with it stopped by SIGSTOP, in an order drawn for each pair, until
the 95 % interval of their ratio is narrower than 0.2 % or the time is over.
"""

import math
import os
import random
import signal
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from scipy.stats import t as student_t
from torch.nn.functional import cross_entropy

from gpuagent_workloads.classification.resnet import resnet18
from tests.bench.figures import Figure
from tests.support.servers import Node, until

WINDOW_SECONDS = 2.0
NARROW = 0.002
LEAST_PAIRS, MOST_PAIRS = 10, 60
RATE_HZ = 10


def measure(node: Node) -> Iterator[Figure]:
    """Yield the slowdown of ResNet-18's steps by an agent at 10 Hz, a figure a pair, in percent."""
    agent = node.start("gpuagent", "start", "--platform", "bench", "--rate", str(RATE_HZ), log="slowdown.log")
    log = node.folder / "slowdown.log"
    until(lambda: "sampling" in log.read_text(), "the agent's first line")
    train = _training()
    train(2 * WINDOW_SECONDS)
    ratios: list[float] = []
    for ratio in _pairs(agent.pid, train):
        ratios.append(ratio)
        if len(ratios) >= LEAST_PAIRS and 2 * _half_width(ratios) < NARROW:
            break
    node.stop(agent)
    mean, half = statistics.mean(ratios), _half_width(ratios)
    interval = f"mean {100 * mean:+.3f} %, 95 % interval {100 * (mean - half):+.3f} to {100 * (mean + half):+.3f} %"
    note = f"{interval}; pairs of windows of {WINDOW_SECONDS:.0f} s, agent at {RATE_HZ} Hz"
    yield Figure(name="slowdown of training", unit="%", values=[100 * ratio for ratio in ratios], note=note)


def _pairs(agent_pid: int, train: Callable[[float], float]) -> Iterator[float]:
    """Yield the relative slowdown, the logarithm of the ratio of step times, of one pair of windows after the other."""
    order = random.Random(1)
    try:
        for _ in range(MOST_PAIRS):
            step_seconds = {}
            for running in order.sample([True, False], 2):
                os.kill(agent_pid, signal.SIGCONT if running else signal.SIGSTOP)
                time.sleep(0.1)
                step_seconds[running] = train(WINDOW_SECONDS)
            yield math.log(step_seconds[True] / step_seconds[False])
    finally:
        os.kill(agent_pid, signal.SIGCONT)


def _half_width(ratios: list[float]) -> float:
    """Return half of the 95 % interval of the mean, by Student's t."""
    return float(student_t.ppf(0.975, len(ratios) - 1)) * statistics.stdev(ratios) / math.sqrt(len(ratios))


def _training() -> Callable[[float], float]:
    """Return what trains for some seconds and returns the mean time of a step."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    # Of two cores one is left to the agent; a GPU's host thread needs only one.
    torch.set_num_threads(1)
    batch, side = (64, 224) if device.type == "cuda" else (4, 64)
    model = resnet18(200).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images = torch.randn(batch, 3, side, side, device=device)
    labels = torch.randint(0, 200, (batch,), device=device)

    def train(seconds: float) -> float:
        began_seconds, steps = time.perf_counter(), 0
        while time.perf_counter() - began_seconds < seconds:
            optimizer.zero_grad()
            loss = cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            # Waits for the device, so that the time is that of whole steps.
            loss.item()
            steps += 1
        return (time.perf_counter() - began_seconds) / steps

    return train
