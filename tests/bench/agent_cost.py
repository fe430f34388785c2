"""What the agent costs: CPU share and resident memory of `gpuagent start`, streaming to a collector."""

import time

import psutil

from tests.bench.figures import Figure
from tests.support.servers import Node, until

RATES_HZ = (1.0, 10.0, 50.0)
WINDOW_SECONDS = 10.0
WINDOWS = 3


def measure(node: Node) -> list[Figure]:
    """Return CPU share and memory at several rates, in windows after a settling window."""
    return [figure for rate_hz in RATES_HZ for figure in _at_rate(node, rate_hz)]


def _at_rate(node: Node, rate_hz: float) -> list[Figure]:
    process = node.start("gpuagent", "start", "--platform", "bench", "--rate", f"{rate_hz:g}", log="agent.log")
    log = node.folder / "agent.log"
    until(lambda: "sampling" in log.read_text(), "the agent's first line")
    watched = psutil.Process(process.pid)
    time.sleep(WINDOW_SECONDS)
    shares, memory = [], []
    for _ in range(WINDOWS):
        before, start = watched.cpu_times(), time.perf_counter()
        time.sleep(WINDOW_SECONDS)
        after, seconds = watched.cpu_times(), time.perf_counter() - start
        shares.append(100 * (after.user + after.system - before.user - before.system) / seconds)
        memory.append(watched.memory_info().rss / 2**20)
    node.stop(process)
    how = f"`gpuagent start --rate {rate_hz:g}`, windows of {WINDOW_SECONDS:.0f} s"
    return [
        Figure(name=f"agent CPU at {rate_hz:g} Hz", unit="% of a core", values=shares, note=how),
        Figure(name=f"agent memory at {rate_hz:g} Hz", unit="MiB RSS", values=memory, note=how),
    ]
