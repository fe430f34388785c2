"""The time of `--help` of the commands."""

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import Figure, short
from tests.support.servers import BIN, Node

REPEATS = 11


def measure(_node: Node) -> list[Figure]:
    """Return the wall time of `--help` of both commands, after one warm-up each."""
    peers = {"Python alone": [sys.executable, "-c", ""]}
    peers |= {name: [name, "--version"] for name in ("prometheus", "victoria-metrics") if shutil.which(name)}
    beside = ", ".join(f"{name} {short(statistics.median(_seconds(words)))} s" for name, words in peers.items())
    note = "wall time, page cache warm"
    return [
        Figure(name=f"`{name} --help`", unit="s", values=_seconds([BIN / name, "--help"]), peers=beside, note=note)
        for name in ("gpuagent", "collector")
    ]


def _seconds(command: Sequence[str | Path]) -> list[float]:
    times = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return times[1:]
