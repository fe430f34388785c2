"""The agent's cost at 10 Hz while its node is idle, while a program works there, and while it runs one itself.

Two minutes with `slowdown`, so that one loan of a GPU is enough: `python -m benchmarks states slowdown`.
"""

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from benchmarks.figures import Figure
from benchmarks.machine import count_gpus
from benchmarks.watching import Use, watch
from tests.support.servers import Node

RATE_HZ = 10
WINDOW_SECONDS = 6.0
WINDOWS = 3
# Until a state is settled: clocks, caches and the agent's own rates.
SETTLE_SECONDS = 5.0

# Threads that take less are not named.
LEAST_PERCENT = 0.005

MOST_MIB = 64.0
# Of one core, by the number of GPUs; between them by the line through both.
_MOST_PERCENT_OF_ONE, _MOST_PERCENT_OF_EIGHT = 0.5, 1.5

# Keeps every GPU busy, or without any one core.
_WORK = """
import sys, time
end = time.monotonic() + float(sys.argv[1])
try:
    import torch
    devices = range(torch.cuda.device_count())
except ImportError:
    devices = ()
sides = [torch.randn(8192, 8192, device=f"cuda:{device}", dtype=torch.bfloat16) for device in devices]
done = [torch.cuda.Event(blocking=True) for _ in devices]
while time.monotonic() < end:
    for device, side in zip(devices, sides):
        with torch.cuda.device(device):
            for _ in range(100):
                torch.mm(side, side)
            done[device].record()
    for event in done:
        event.synchronize()
"""


def most_percent(gpus: int) -> float:
    """Return the goal for the agent's share of a core on a node with that many GPUs."""
    a_gpu = (_MOST_PERCENT_OF_EIGHT - _MOST_PERCENT_OF_ONE) / 7
    return _MOST_PERCENT_OF_ONE + a_gpu * max(0, gpus - 1)


def measure(node: Node) -> Iterator[Figure]:
    """Yield CPU and memory of one agent, state by state, beside the goals."""
    agent = node.start_agent("--platform", "bench", "--rate", str(RATE_HZ))
    work = [sys.executable, "-c", _WORK, str(SETTLE_SECONDS + (WINDOWS + 1) * WINDOW_SECONDS)]
    yield from _state(agent.pid, "idle node", "nobody watches")
    with subprocess.Popen(work, stdin=subprocess.DEVNULL) as program:
        yield from _state(agent.pid, "busy node", "another user's program")
        program.kill()
    run = node.start("gpuagent", "run", "--", *work, log="states-run.log")
    yield from _state(agent.pid, "node with a run", "`gpuagent run` of the same program")
    node.stop(run)
    yield from _state(agent.pid, "idle node again", "nobody watches")
    if shutil.which("nvidia-smi"):
        print(node.run("gpuagent", "info", "--cost").stdout.partition("\nSources")[2], file=sys.stderr)
    node.stop(agent)


def _by_thread(uses: Sequence[Use]) -> Iterator[tuple[str, float]]:
    """Yield the name of each thread, or group of threads, and the median of its shares."""
    for name in uses[-1].percent_by_thread:
        yield name, statistics.median(use.percent_by_thread.get(name, 0.0) for use in uses)


def _state(pid: int, name: str, how: str) -> Iterator[Figure]:
    time.sleep(SETTLE_SECONDS)
    uses = [watch(pid, WINDOW_SECONDS) for _ in range(WINDOWS)]
    gpus = count_gpus()
    parts = [f"{part} {percent:.3f}" for part, percent in sorted(_by_thread(uses)) if percent >= LEAST_PERCENT]
    print(f"{name}, % of a core by thread: {', '.join(parts)}", file=sys.stderr, flush=True)
    quantities = (
        ("CPU", "% of a core", [use.cpu_percent for use in uses], most_percent(gpus)),
        ("memory", "MiB RSS", [use.rss_mib for use in uses], MOST_MIB),
    )
    note = f"{how}, {gpus} GPUs, {RATE_HZ} Hz, windows of {WINDOW_SECONDS:.0f} s"
    for what, unit, values, goal in quantities:
        yield Figure(name=f"{name}: {what}", unit=unit, values=values, note=note, goal=goal)
        note = ""  # that of the rows below it as well
