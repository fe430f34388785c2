"""A check that the agent's memory stays flat while it samples for long and runs many short commands.

`python -m benchmarks load --calm` is the same for a collector.
"""

import os
import statistics
import sys
import time
from collections.abc import Iterator

from benchmarks.figures import Figure
from benchmarks.machine import count_gpus
from benchmarks.watching import watch
from tests.support.servers import Node

SECONDS = float(os.environ.get("GPUAGENT_SOAK_SECONDS", "1800"))
WINDOW_SECONDS = 10.0
# The most that the last quarter may have more than the second; the first is the start: caches, buffers, first runs.
MOST_GROWTH_PERCENT = 2.0


def measure(node: Node) -> Iterator[Figure]:
    """Yield the agent's memory over the time, and how much more it was at the end than after the start."""
    agent = node.start_agent("--platform", "bench")
    began_seconds = time.monotonic()
    minutes: list[float] = []
    rss_mib: list[float] = []
    while time.monotonic() < began_seconds + SECONDS:
        node.run("gpuagent", "run", "--", "true")
        rss_mib.append(watch(agent.pid, WINDOW_SECONDS).rss_mib)
        minutes.append((time.monotonic() - began_seconds) / 60)
        print(f"{minutes[-1]:.2f} minutes: agent {rss_mib[-1]:.2f} MiB", file=sys.stderr, flush=True)
    node.stop(agent)
    place = len(rss_mib) // 4
    quarters = [statistics.mean(rss_mib[part * place : (part + 1) * place]) for part in range(4)]
    slope = 60 * statistics.linear_regression(minutes[place:], rss_mib[place:]).slope
    means = ", ".join(f"{mean:.1f}" for mean in quarters)
    note = f"{SECONDS / 60:.0f} minutes at 10 Hz, {count_gpus()} GPUs, {len(rss_mib)} runs; means of quarters {means}"
    yield Figure(name="agent over time: memory", unit="MiB RSS", values=rss_mib, note=note)
    growth = 100 * (quarters[-1] / quarters[1] - 1)
    note = f"last quarter beside the second; {slope:+.2f} MiB an hour after the first quarter"
    yield Figure(name="agent over time: growth", unit="%", values=[growth], note=note, goal=MOST_GROWTH_PERCENT)
