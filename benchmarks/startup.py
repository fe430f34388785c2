"""The time of `--help` of the commands."""

import subprocess
import time

from benchmarks.figures import Figure
from tests.support.servers import BIN, Node

REPEATS = 11


def measure(_node: Node) -> list[Figure]:
    """Return the wall time of `--help` of both commands, after one warm-up each."""
    return [_help_seconds(name) for name in ("gpuagent", "collector")]


def _help_seconds(name: str) -> Figure:
    times = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        subprocess.run([BIN / name, "--help"], check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return Figure(name=f"`{name} --help`", unit="s", values=times[1:], note="wall time, page cache warm")
