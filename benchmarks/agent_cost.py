"""The agent's cost and punctuality while streaming to a collector, beside installed peers."""

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise

from benchmarks.agent_states import MOST_MIB, most_percent
from benchmarks.agent_states import RATE_HZ as GOAL_RATE_HZ
from benchmarks.figures import Figure
from benchmarks.ingest.http import get
from benchmarks.machine import count_gpus
from benchmarks.watching import Use, watch
from tests.support.servers import Node

RATES_HZ = (1.0, 10.0, 50.0)
WINDOW_SECONDS = 8.0
WINDOWS = 3

_EXPORTER_PORT = 15051
# The same figures of a host as the agent's, ten times a second, and kept nowhere.
_PSUTIL_LOOP = """
import psutil, time
while True:
    psutil.cpu_times(percpu=True), psutil.virtual_memory(), psutil.disk_io_counters(), psutil.net_io_counters()
    time.sleep(0.1)
"""

# Only installed ones are measured. An exporter is scraped every second.
PEERS: tuple[tuple[str, ...], ...] = (
    (sys.executable, "-c", _PSUTIL_LOOP),
    ("prometheus-node-exporter", f"--web.listen-address=127.0.0.1:{_EXPORTER_PORT}", "--log.level=error"),
    ("nvidia-smi", "-l", "1"),
    ("nvidia-smi", "-lms", "100"),
    ("nvidia-smi", "dmon"),
    ("nvitop-exporter", "--interval", "1", "--bind-address", "127.0.0.1", "--port", "15050"),
    ("gpustat", "-i", "1"),
)

_TICKS = """
WITH ticks AS (
    SELECT session_id, time FROM host_samples WHERE cpu_percent IS NOT NULL
    UNION
    SELECT session_id, time FROM gpu_samples WHERE utilization_percent IS NOT NULL
)
SELECT epoch_us(time) / 1000 AS milliseconds FROM ticks
WHERE session_id = (SELECT arg_max(session_id, started_at) FROM sessions) ORDER BY time
"""


def measure(node: Node) -> Iterator[Figure]:
    """Yield the cost of the agent at several rates, and of its peers at theirs."""
    for command in PEERS:
        if shutil.which(command[0]):
            yield from _peer(command)
    for rate_hz in RATES_HZ:
        yield from _at_rate(node, rate_hz)


def _at_rate(node: Node, rate_hz: float) -> Iterator[Figure]:
    process = node.start_agent("--platform", "bench", "--rate", f"{rate_hz:g}")
    uses = _watched(process.pid)
    node.stop(process)
    name = f"agent at {rate_hz:g} Hz"
    # The goals are those of 10 Hz.
    goals = {"CPU": most_percent(count_gpus()), "memory": MOST_MIB} if rate_hz == GOAL_RATE_HZ else {}
    yield from _figures(name, uses, f"`gpuagent start --rate {rate_hz:g}`", goals)
    yield from _lateness(node, name)


def _lateness(node: Node, name: str) -> Iterator[Figure]:
    """Yield the delays of ticks, in milliseconds."""
    times_ms = [
        row["milliseconds"] for row in json.loads(node.run("collector", "query", "sql", _TICKS, "--json").stdout)
    ]
    period_ms = _period_ms(times_ms)
    late_ms = lateness_ms(times_ms, period_ms)
    note = f"99th percentile {late_ms[int(0.99 * len(late_ms))]:.2f} ms, {len(late_ms)} ticks every {period_ms:.0f} ms"
    yield Figure(name=f"{name}: ticks late by", unit="ms", values=late_ms, note=note)


def lateness_ms(times_ms: Sequence[float], period_ms: float) -> list[float]:
    """Return the sorted delays of ticks, relative to the beat with the smallest total delay.

    None comes before its time: the one that is nearest to the next beat has been late for most of a period.
    """
    return min((sorted((time_ms - beat_ms) % period_ms for time_ms in times_ms) for beat_ms in times_ms), key=sum)


def _period_ms(times_ms: Sequence[float]) -> float:
    """Return the period of the ticks: the rates of sources make it a whole number of milliseconds."""
    gaps_ms = sorted(after - before for before, after in pairwise(times_ms))
    return float(round(gaps_ms[len(gaps_ms) // 2]))


def _peer(command: Sequence[str]) -> Iterator[Figure]:
    name = "psutil loop at 10 Hz" if _PSUTIL_LOOP in command else f"`{' '.join(command[:3])}`"
    exporter = command[0] == "prometheus-node-exporter"
    name = "node exporter at 1 Hz" if exporter else name
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ended = threading.Event()
    try:
        if exporter:
            threading.Thread(target=_scrape, args=(ended,), daemon=True).start()
        uses = _watched(process.pid)
    except (FileNotFoundError, KeyError):
        print(f"{name} ended by itself", file=sys.stderr)
        return
    finally:
        ended.set()
        process.kill()
        process.wait()
    yield from _figures(name, uses, "its own process", {})


def _scrape(ended: threading.Event) -> None:
    while not ended.wait(1.0):
        with suppress(OSError):  # it is not up yet, or has just ended
            get(f"http://127.0.0.1:{_EXPORTER_PORT}/metrics")


def _watched(pid: int) -> list[Use]:
    """Let a process settle, then watch it in several windows."""
    time.sleep(WINDOW_SECONDS / 2)
    return [watch(pid, WINDOW_SECONDS) for _ in range(WINDOWS)]


def _figures(name: str, uses: Sequence[Use], how: str, goals: Mapping[str, float]) -> Iterator[Figure]:
    quantities = (
        ("CPU", "% of a core", [use.cpu_percent for use in uses], f"{how}, windows of {WINDOW_SECONDS:.0f} s"),
        ("memory", "MiB RSS", [use.rss_mib for use in uses], ""),
    )
    for what, unit, values, note in quantities:
        yield Figure(name=f"{name}: {what}", unit=unit, values=values, note=note, goal=goals.get(what))
