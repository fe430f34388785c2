"""`make verify-gpu`: the GPU figures of the agent beside those of nvidia-smi, nvitop and torch, over a run's window."""

import csv
import datetime
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.peer_log import READERS
from tests.support.servers import Node

_FIELDS = "timestamp,uuid,utilization.gpu,memory.used,power.draw.instant,temperature.gpu,clocks.sm"

# What is compared: its name, the unit on the screen, our column, and the column's unit in that.
_QUANTITIES = (
    ("utilisation", "%", "utilization_percent", 1.0),
    ("memory used", "MiB", "memory_used_bytes", float(2**20)),
    ("power", "W", "power_watts", 1.0),
    ("temperature", "°C", "temperature_celsius", 1.0),
    ("SM clock", "MHz", "sm_clock_mhz", 1.0),
)

_BURSTS = 5
_BURST_SCRIPT = f"""
import time, torch
left = torch.randn(4096, 4096, device="cuda")
for _ in range({_BURSTS}):
    end = time.monotonic() + 1
    while time.monotonic() < end:
        left @ left
        torch.cuda.synchronize()
    time.sleep(1)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The readings of one quantity by one tool in the window."""

    values: Sequence[float]

    def cell(self) -> str:
        """Return the mean, and of how many readings."""
        return f"{statistics.mean(self.values):,.1f} ({len(self.values)})" if self.values else "–"


# What a tool wrote: UUID → time in seconds since the epoch, and the quantities in the order of _QUANTITIES.
Log = dict[str, list[tuple[float, list[float]]]]


def main() -> None:
    """Train MNIST on the first GPU while all watch it, and print the table; then look for pauses between bursts."""
    with tempfile.TemporaryDirectory(prefix="gpuagent-verify-") as folder, Node(Path(folder)) as node:
        node.serve()
        with _peers(node.folder) as peers:
            run = node.run("gpuagent", "run", "mnist", "--device", "cuda", "--batch-size", "1024", "--json")
        _compare(node, json.loads(run.stdout)[0]["run_id"], {name: _read(name, log) for name, log in peers.items()})
        _bursts(node)


@contextmanager
def _peers(folder: Path) -> Iterator[dict[str, Path]]:
    """Let the other tools watch while the context lasts; yield their logs."""
    commands = {"nvidia-smi": ["nvidia-smi", f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits", "-lms", "100"]}
    for name in READERS:
        if importlib.util.find_spec(name):
            commands[name] = [sys.executable, "-m", "benchmarks.peer_log", name]
    with ExitStack() as stack:
        logs = {name: folder / f"{name}.csv" for name in commands}
        for name, command in commands.items():
            output = stack.enter_context(logs[name].open("w"))
            process = stack.enter_context(subprocess.Popen(command, stdout=output))
            stack.callback(process.kill)
        yield logs


def _read(name: str, log: Path) -> Log:
    read: Log = {}
    for fields in csv.reader(log.read_text().splitlines(), skipinitialspace=True):
        if len(fields) == 2 + len(_QUANTITIES):
            read.setdefault(fields[1], []).append((_seconds(name, fields[0]), [float(text) for text in fields[2:]]))
    if name == "nvidia-smi":  # it writes MiB
        for _, values in (reading for readings in read.values() for reading in readings):
            values[1] *= 2**20
    return read


def _seconds(name: str, text: str) -> float:
    if name != "nvidia-smi":
        return float(text)
    return datetime.datetime.strptime(text, "%Y/%m/%d %H:%M:%S.%f").astimezone().timestamp()


def _compare(node: Node, run_id: str, logs: dict[str, Log]) -> None:
    """Print the table of the run's measured phase."""
    window = _ask(
        node,
        "SELECT epoch(min(time) FILTER (name = 'measure')) AS start, "
        "epoch(min(time) FILTER (name = 'teardown')) AS stop "
        f"FROM run_events WHERE event = 'phase' AND run_id = '{run_id}'",
    )[0]
    start, stop = window["start"], window["stop"]
    device = f"SELECT device_id FROM run_devices WHERE run_id = '{run_id}'"
    uuid = _ask(node, f"SELECT uuid FROM devices WHERE device_id IN ({device})")[0]["uuid"]
    ours = _ask(
        node, f"SELECT * FROM gpu_samples WHERE device_id IN ({device}) AND epoch(time) BETWEEN {start} AND {stop}"
    )
    print(f"| measured phase of `mnist`: mean (readings) | gpuagent | {' | '.join(logs)} | ours by theirs |")
    print("|---" * (3 + len(logs)) + "|")
    for index, (name, unit, column, scale) in enumerate(_QUANTITIES):
        own = Series(values=[row[column] / scale for row in ours if row[column] is not None])
        theirs = [
            Series(values=[values[index] / scale for at, values in log.get(uuid, []) if start <= at <= stop])
            for log in logs.values()
        ]
        ratios = ", ".join(
            f"{statistics.mean(own.values) / statistics.mean(one.values):.3f}" for one in theirs if one.values
        )
        print(f"| {name}, {unit} | {' | '.join(one.cell() for one in (own, *theirs))} | {ratios} |")


def _bursts(node: Node) -> None:
    """Print how much of a run that works and sleeps in turns the samples show as pauses."""
    run = node.run("gpuagent", "run", "--json", "--", sys.executable, "-c", _BURST_SCRIPT)
    run_id = json.loads(run.stdout)[0]["run_id"]
    rows = _ask(
        node,
        "SELECT utilization_percent = 0 AS idle FROM gpu_samples AS s JOIN run_devices USING (device_id) "
        f"JOIN runs USING (run_id) WHERE run_id = '{run_id}' AND s.time BETWEEN started_at AND ended_at "
        "AND utilization_percent IS NOT NULL ORDER BY s.time",
    )
    idle = [row["idle"] for row in rows]
    first_busy, last_busy = idle.index(False), len(idle) - idle[::-1].index(False)
    within = idle[first_busy:last_busy]
    pauses = sum(1 for before, after in pairwise(within) if after and not before)
    print(
        f"\n{_BURSTS} bursts of 1 s with pauses of 1 s: {pauses} pauses seen between them, in "
        f"{sum(within)} of {len(within)} samples from the first burst to the last"
    )


def _ask(node: Node, sql: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(node.run("collector", "query", "sql", sql, "--json").stdout)
    return rows


if __name__ == "__main__":
    main()
