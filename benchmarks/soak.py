"""A check that the agent's memory stays flat while it samples for long and runs many short commands."""

import os
import time
from collections.abc import Iterator

from benchmarks.figures import Figure
from benchmarks.watching import watch
from tests.support.servers import Node, until

SECONDS = float(os.environ.get("GPUAGENT_SOAK_SECONDS", "1800"))
WINDOW_SECONDS = 10.0
# What the agent grows in the first part of the time is its start: caches, buffers, the first runs.
SETTLED_SHARE = 0.1


def measure(node: Node) -> Iterator[Figure]:
    """Yield the agent's memory over the time, and how much more it was at the end than after the start."""
    agent = node.start("gpuagent", "start", "--platform", "bench", log="soak.log")
    log = node.folder / "soak.log"
    until(lambda: "sampling" in log.read_text(), "the agent's first line")
    rss_mib: list[float] = []
    runs, end = 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        node.run("gpuagent", "run", "--", "true")
        runs += 1
        rss_mib.append(watch(agent.pid, WINDOW_SECONDS).rss_mib)
    node.stop(agent)
    settled = rss_mib[int(SETTLED_SHARE * len(rss_mib)) :]
    growth = 100 * (settled[-1] / settled[0] - 1)
    note = f"{SECONDS / 60:.0f} minutes at 10 Hz, {runs} runs; {growth:+.1f} % from the first tenth of it to the end"
    yield Figure(name="agent over time: memory", unit="MiB RSS", values=rss_mib, note=note)
