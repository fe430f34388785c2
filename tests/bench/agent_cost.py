"""What the agent costs, streaming to a collector, and how well it keeps time; beside it its peers, if there are any."""

import json
import shutil
import subprocess
import time
from collections.abc import Sequence

from tests.bench.figures import Figure
from tests.bench.watching import Use, watch
from tests.support.servers import Node, until

RATES_HZ = (1.0, 10.0, 50.0)
WINDOW_SECONDS = 10.0
WINDOWS = 3

PEERS: tuple[tuple[str, ...], ...] = (
    ("nvidia-smi", "-l", "1"),
    ("nvidia-smi", "-lms", "100"),
    ("nvidia-smi", "dmon"),
    ("nvitop-exporter", "--interval", "1", "--bind-address", "127.0.0.1", "--port", "15050"),
    ("gpustat", "-i", "1"),
)
"""Those that are installed are measured."""

_TICKS = """
SELECT (epoch_us(time) - min(epoch_us(time)) OVER ()) / 1000 AS milliseconds FROM host_samples
WHERE cpu_percent IS NOT NULL AND session_id = (SELECT arg_max(session_id, started_at) FROM sessions) ORDER BY time
"""


def measure(node: Node) -> list[Figure]:
    """Return what the agent costs at several rates, and its peers at theirs."""
    figures = [figure for rate_hz in RATES_HZ for figure in _at_rate(node, rate_hz)]
    for command in PEERS:
        if shutil.which(command[0]):
            figures += _peer(command)
    return figures


def _at_rate(node: Node, rate_hz: float) -> list[Figure]:
    process = node.start("gpuagent", "start", "--platform", "bench", "--rate", f"{rate_hz:g}", log="agent.log")
    log = node.folder / "agent.log"
    until(lambda: "sampling" in log.read_text(), "the agent's first line")
    uses = _watched(process.pid)
    node.stop(process)
    name = f"agent at {rate_hz:g} Hz"
    return [*_figures(name, uses, f"`gpuagent start --rate {rate_hz:g}`"), _lateness(node, name, min(rate_hz, 10.0))]


def _lateness(node: Node, name: str, rate_hz: float) -> Figure:
    """Return by how much ticks came after their time, in milliseconds, against the most punctual of them."""
    rows = json.loads(node.run("collector", "query", "sql", _TICKS, "--json").stdout)
    period_ms = 1000 / rate_hz
    times_ms = [row["milliseconds"] for row in rows]
    off_ms = [time_ms - period_ms * round(time_ms / period_ms) for time_ms in times_ms]
    late_ms = sorted(off - min(off_ms) for off in off_ms)
    note = f"99th percentile {late_ms[int(0.99 * len(late_ms))]:.2f} ms, {len(late_ms)} ticks"
    return Figure(name=f"{name}: ticks late by", unit="ms", values=late_ms, note=note)


def _peer(command: Sequence[str]) -> list[Figure]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        uses = _watched(process.pid)
    finally:
        process.terminate()
        process.wait()
    return _figures(f"`{' '.join(command[:3])}`", uses, "its own process")


def _watched(pid: int) -> list[Use]:
    """Let a process settle, then watch it in several windows."""
    time.sleep(WINDOW_SECONDS / 2)
    return [watch(pid, WINDOW_SECONDS) for _ in range(WINDOWS)]


def _figures(name: str, uses: Sequence[Use], how: str) -> list[Figure]:
    note = f"{how}, windows of {WINDOW_SECONDS:.0f} s"
    return [
        Figure(name=f"{name}: CPU", unit="% of a core", values=[use.cpu_percent for use in uses], note=note),
        Figure(name=f"{name}: memory", unit="MiB RSS", values=[use.rss_mib for use in uses], note=note),
        Figure(
            name=f"{name}: context switches", unit="/s", values=[use.switches_per_second for use in uses], note=note
        ),
    ]
